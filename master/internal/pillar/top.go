package pillar

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"saltern/master/value"
)

// errTop is Salt's error for a malformed top file. After this error no top file is used.
const errTop = saltError("Error encountered while rendering pillar top file.")

// saltError is an error with the exact text that Salt uses, because tools may search for it.
type saltError string

func (e saltError) Error() string { return string(e) }

// chosen is a target in a top file, with the names of its SLS.
type chosen struct {
	top    string // environment of the top file
	target any
	typ    string
	sls    []string
	order  int64
}

// topFile holds the targets of each environment. The order of the environments and of the targets
// is significant.
type topFile struct {
	envs    []string
	targets map[string][]*chosen
}

// mergedTop reads the top files and merges them with merge. What is wrong with them counts as an error of the
// pillar, which then has no files.
func (c *compilation) mergedTop(merge func([]string, map[string][]*value.Map) (*topFile, error)) *topFile {
	envs, files := c.readTops()
	top, err := merge(envs, files)
	if err != nil {
		c.topErrors = append(c.topErrors, err.Error())
		return &topFile{}
	}
	return top
}

// readTops reads the top files of the environments that apply to this minion. It returns the names
// of the environments, and the contents of the top files by environment (salt/pillar/__init__.py
// get_tops).
func (c *compilation) readTops() (envs []string, files map[string][]*value.Map) {
	files = map[string][]*value.Map{}
	for _, env := range c.topEnvs() {
		v, found, err := c.readTopFile(env)
		if c.isOver() {
			break
		}
		if err != nil {
			path, _ := findFile(c.envNamed(env), c.compiler.cfg.Top)
			c.compiler.log.Error("a pillar top file cannot be rendered",
				append([]any{"minion", c.req.ID, "env", env}, c.logAttrs(err, path)...)...)
			c.topErrors = append(c.topErrors, "Rendering Primary Top file failed, render error:\n"+err.Error())
			break
		}

		if found {
			envs = append(envs, env)
			files[env] = append(files[env], v)
		}
	}

	// Read the files that the top files include. Includes in the included files are ignored.
	for _, env := range envs {
		includes, ok := files[env][0].Get("include")
		if !ok {
			continue
		}

		files[env][0] = files[env][0].Clone()
		files[env][0].Delete("include")
		list, _ := includes.([]any)
		done := map[string]bool{}
		for _, inc := range list {
			name, _ := inc.(string)
			if name == "" || done[name] {
				continue
			}

			done[name] = true
			path, _, err := findSLS(c.envNamed(env), name)
			var v any
			if err == nil && path != "" {
				v, err = c.compileFile(path, env, "", nil)
			}

			m, isMap := v.(*value.Map)
			if err == nil && path != "" && !isMap {
				err = errors.New("it does not render to a dictionary")
			}

			if err != nil {
				c.topErrors = append(c.topErrors,
					fmt.Sprintf("Rendering Top file %s failed, render error:\n%v", name, err))
				continue
			}

			if isMap {
				files[env] = append(files[env], m)
			}
		}
	}

	return envs, files
}

// topEnvs returns the environments whose top files readTops reads.
func (c *compilation) topEnvs() []string {
	if c.pillarenv != "" {
		if c.hasEnv(c.pillarenv) {
			return []string{c.pillarenv}
		}
		c.compiler.log.Debug("the pillarenv is not configured", "minion", c.req.ID, "env", c.pillarenv)
		return nil
	}

	all := c.envNames()
	if c.compiler.cfg.Strategy == "none" {
		only := c.saltenv
		only = cmp.Or(only, "base")
		if !slices.Contains(all, only) {
			return nil
		}
		return []string{only}
	}

	return all
}

func (c *compilation) readTopFile(env string) (v *value.Map, found bool, err error) {
	path, err := findFile(c.envNamed(env), c.compiler.cfg.Top)
	if err != nil || path == "" {
		return nil, false, err
	}
	val, err := c.compileFile(path, env, "", nil)
	if err != nil {
		return nil, false, err
	}
	m, ok := val.(*value.Map)
	if !ok {
		return nil, false, errors.New("the top file does not render to a dictionary")
	}
	return m, true, nil
}

// mergeTops merges the top files (merge_tops and sort_top_targets). If several files contain the
// same target, the SLS of the last file apply.
func (c *compilation) mergeTops(envs []string, files map[string][]*value.Map) (*topFile, error) {
	t := &topFile{targets: map[string][]*chosen{}}
	for _, from := range envs {
		for _, file := range files[from] {
			for k, body := range file.All() {
				env, ok := k.(string)
				if !ok || env == "include" {
					continue
				}

				targets, ok := body.(*value.Map)
				if !ok {
					if emptyIterable(body) {
						continue
					}
					return nil, errTop
				}

				for tgt, comps := range targets.All() {
					ch, ignore, err := choose(tgt, comps)
					if err != nil {
						return nil, err
					}

					if ignore {
						c.ignored[env] = append(c.ignored[env], ch.sls...)
					}

					ch.top = from
					t.setTarget(env, ch)
				}
			}
		}
	}

	for _, l := range t.targets {
		slices.SortStableFunc(l, func(a, b *chosen) int { return int(max(-1, min(1, a.order-b.order))) })
	}

	return t, nil
}

func (t *topFile) setTarget(env string, ch *chosen) {
	if !slices.Contains(t.envs, env) {
		t.envs = append(t.envs, env)
	}
	for i, old := range t.targets[env] {
		if old.target == ch.target {
			t.targets[env][i] = ch
			return
		}
	}
	t.targets[env] = append(t.targets[env], ch)
}

func emptyIterable(v any) bool {
	switch v := v.(type) {
	case []any:
		return len(v) == 0
	case string:
		return v == ""
	}
	return false
}

// choose parses comps, the value of the target tgt in a top file. ignoreMissing reports whether the
// value contains ignore_missing. The error is errTop if the value is malformed.
func choose(tgt, comps any) (ch *chosen, ignoreMissing bool, err error) {
	ch = &chosen{target: tgt, typ: "compound"}
	var items []any
	switch v := comps.(type) {
	case []any:
		items = v
	case *value.Map: // iterating over a Python dict yields its keys
		for k := range v.All() {
			items = append(items, k)
		}
	case string: // iterating over a text yields its characters
		for _, r := range v {
			items = append(items, string(r))
		}
	default:
		return nil, false, errTop
	}

	for _, item := range items {
		switch v := item.(type) {
		case string:
			if !slices.Contains(ch.sls, v) {
				ch.sls = append(ch.sls, v)
			}
		case *value.Map:
			if m, ok := v.Get("match"); ok {
				if ch.typ, ok = m.(string); !ok {
					return nil, false, errTop
				}
			}

			if o, ok := v.Get("order"); ok {
				if ch.order, ok = orderOf(o); !ok {
					return nil, false, errTop
				}
			}

			if ig, _ := v.Get("ignore_missing"); value.Truth(ig) {
				ignoreMissing = true
			}
		}
	}

	return ch, ignoreMissing, nil
}

func orderOf(v any) (int64, bool) {
	switch v := v.(type) {
	case int64:
		return v, true
	case bool:
		if v {
			return 1, true
		}
		return 0, true
	case float64:
		return int64(v), true
	case string:
		n, _ := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
		return n, true
	}

	return 0, false
}

// selected is an environment, with the names of its SLS that apply to the minion.
type selected struct {
	env string
	sls []string
}

// matchTops returns the SLS of all targets that match the minion (top_matches).
func (c *compilation) matchTops(t *topFile) []selected {
	found := c.matchTargets(t)
	c.outcome.noteSelected(found)
	return found
}

func (c *compilation) matchTargets(t *topFile) (out []selected) {
	for _, env := range t.envs {
		if c.pillarenv != "" && env != c.pillarenv {
			continue
		}

		var list []string
		matched := false
		for _, ch := range t.targets[env] {
			ok, err := c.matchesTarget(ch)
			c.trace.addLine(env, ch, ok, err)
			if errors.Is(err, errNoText) {
				continue
			}
			if err != nil {
				c.compiler.log.Error("a target in a pillar top file cannot be used", "minion", c.req.ID, "env", env,
					"target", ch.target, "type", ch.typ, "error", err)
				continue
			}

			if !ok {
				continue
			}

			matched = true
			for _, s := range ch.sls {
				if !slices.Contains(list, s) {
					list = append(list, s)
				}
			}
		}

		if matched {
			out = append(out, selected{env, list})
		}
	}

	if len(c.compiler.cfg.EnvOrder) == 0 {
		return out
	}

	var ordered []selected
	for _, env := range c.compiler.cfg.EnvOrder {
		if i := slices.IndexFunc(out, func(s selected) bool { return s.env == env }); i >= 0 {
			ordered = append(ordered, out[i])
			out = slices.Delete(out, i, i+1)
		}
	}

	return append(ordered, out...)
}
