package conf

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"saltern/master/value"
)

// sectionKeys are the settings that Salt's systems of external_auth read beside users and
// groups (salt/auth/file.py, rest.py). They begin with "^". What an administrator's own
// system reads is not known.
var sectionKeys = map[string][]string{
	"auto":         nil,
	"file":         {"^filename", "^filetype", "^hashtype", "^realm", "^field_separator", "^username_field", "^password_field"},
	"ldap":         nil,
	"pam":          nil,
	"rest":         {"^url"},
	"sharedsecret": nil,
}

// composites notes what is not obeyed in options whose values are maps of maps, or lists of
// maps, and that no other check looks into.
func (a *assembly) composites(m *Master) {
	if a.loader.Tool {
		return
	}
	a.authSections(m.ExternalAuth)
	a.groups(m.Nodegroups)
	a.reactions(m.Reactor.Rules)
}

// partRemark notes what is not obeyed of an entry of an option, or of a key of the entry.
func (a *assembly) partRemark(option, entry, key, format string, args ...any) {
	o := a.placeIn(option, entry, key)
	a.notes = append(a.notes, Note{Level: slog.LevelWarn, Option: option, Path: o.path, Line: o.line, Text: fmt.Sprintf(format, args...)})
}

func (a *assembly) authSections(systems *value.Map) {
	for name, v := range systems.All() {
		system := fmt.Sprint(name)
		section, ok := v.(*value.Map)
		if !ok {
			a.partRemark("external_auth", system, "", "%s: expected users and groups with what they may do, found %s; nobody is granted anything", system, typeName(v))
			continue
		}
		known, salts := sectionKeys[system]
		if !salts {
			continue
		}
		for _, key := range section.Keys() {
			if !strings.HasPrefix(key, "^") || slices.Contains(known, key) {
				continue
			}
			reads := "it reads no settings"
			if len(known) > 0 {
				reads = "it reads " + strings.Join(known, ", ")
			}
			a.partRemark("external_auth", system, key, "%s: nobody reads %s: %s", system, key, reads)
		}
	}
}

// groups looks at nodegroups: an expression, or a list of its words.
func (a *assembly) groups(groups *value.Map) {
	for name, v := range groups.All() {
		words, list := v.([]any)
		_, text := v.(string)
		wrong := slices.ContainsFunc(words, func(w any) bool { _, ok := w.(string); return !ok })
		if !text && !list || wrong {
			a.partRemark("nodegroups", fmt.Sprint(name), "", "group %v: expected an expression, or a list of texts, found %s; it has no minions", name, value.Repr(v))
		}
	}
}

// reactions looks at reactor: a list of maps of one tag to its files (salt/utils/reactor.py
// list_reactors passes over all else).
func (a *assembly) reactions(option []any) {
	for i, v := range option {
		entry, ok := v.(*value.Map)
		if !ok || entry.Len() != 1 {
			a.partRemark("reactor", "", "", "entry %d is not a map of one tag to its files, and is passed over", i+1)
			continue
		}
		for tag, files := range entry.All() {
			list, isList := files.([]any)
			if _, text := files.(string); text {
				list, isList = []any{files}, true
			}
			wrong := slices.ContainsFunc(list, func(f any) bool { _, ok := f.(string); return !ok })
			if !isList || len(list) == 0 || wrong {
				a.partRemark("reactor", "", "", "entry %d, tag %v: expected the paths of files, found %s", i+1, tag, value.Repr(files))
			}
		}
	}
}
