package extpillar

import (
	"path/filepath"

	"saltern/master/value"
)

// Entry is an entry of ext_pillar that a Runner can run. It is not changed after Parse.
type Entry struct {
	Name       string // name of Salt's module
	Number     int    // place in ext_pillar, from 1; 0: not known
	command    string // of cmd_yaml and cmd_json
	pillarName string // of nodegroups
	tree       tree   // of file_tree
}

// Parse returns an entry of ext_pillar, or nil if Salt's module has to run: the entry names another
// module, or has arguments of which Go does not know what they do.
func Parse(name string, args any) *Entry {
	e := &Entry{Name: name}
	var ok bool
	switch name {
	case "cmd_yaml", "cmd_json":
		e.command, ok = onlyText(args, "command")
	case "nodegroups":
		e.pillarName, ok = onlyText(args, "pillar_name")
		ok = ok || args == nil
		if e.pillarName == "" {
			e.pillarName = "nodegroups"
		}
	case "file_tree":
		e.tree, ok = parseTree(args)
	}
	if !ok {
		return nil
	}
	return e
}

// IsCommand reports whether the entry runs a command of the administrator.
func (e *Entry) IsCommand() bool { return e.command != "" }

// HasGroups reports whether the result may depend on the groups of the minion.
func (e *Entry) HasGroups() bool { return e.Name == "nodegroups" || e.Name == "file_tree" }

// key names the entry by what it runs or reads.
func (e *Entry) key() string { return e.Name + " " + e.command + e.tree.root }

// onlyText returns the value of the only argument of an entry: it stands alone, in a list or with
// its name (salt/pillar/__init__.py _external_pillar_data).
func onlyText(args any, name string) (string, bool) {
	switch v := args.(type) {
	case []any:
		if len(v) != 1 {
			return "", false
		}
		args = v[0]
	case *value.Map:
		named, there := v.Get(name)
		if v.Len() != 1 || !there {
			return "", false
		}
		args = named
	}
	text, ok := args.(string)
	return text, ok && text != ""
}

// parseTree reads the arguments of file_tree.
func parseTree(args any) (tree, bool) {
	named, ok := args.(*value.Map)
	if !ok {
		root, ok := onlyText(args, "root_dir")
		return tree{root: root}, ok && filepath.IsAbs(root)
	}

	var t tree
	for k, v := range named.All() {
		ok := true
		switch k {
		case "root_dir":
			t.root, ok = v.(string)
		case "follow_dir_links":
			t.followLinks, ok = v.(bool)
		case "keep_newline":
			ok = t.readKeepNewline(v)
		case "template":
			ok = v != true // Salt's renderers are in Python
		case "debug", "render_default", "renderer_blacklist", "renderer_whitelist":
			// debug is for log lines; the others are for templates
		default:
			ok = false
		}
		if !ok {
			return tree{}, false
		}
	}
	return t, filepath.IsAbs(t.root)
}

// readKeepNewline reads the argument keep_newline: a bool, or a list of globs.
func (t *tree) readKeepNewline(v any) bool {
	switch v := v.(type) {
	case bool:
		t.keepAll = v
		return true
	case []any:
		for _, x := range v {
			glob, ok := x.(string)
			if !ok {
				return false
			}
			t.keep = append(t.keep, glob)
		}
		return true
	}
	return false
}
