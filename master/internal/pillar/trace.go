package pillar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"saltern/master/value"
)

// maxTraced bounds the lines, and the keys, of one trace.
const maxTraced = 5000

// Line is a line of a top file.
type Line struct {
	Top    string // environment whose top file has the line
	Env    string // environment for which the line selects SLS
	Target string
	Type   string // of the target: "compound" unless the line names another one
	SLS    []string
	// Matches reports whether the target selects the minion.
	Matches bool
	// Fault is why the target cannot be used, or "".
	Fault string
}

// KeySource names a file that has a key of a pillar.
type KeySource struct {
	Key, SLS, Env, File string
}

// Trace describes how the pillar of a minion comes about. It has no values of the pillar.
type Trace struct {
	Lines []Line
	// Keys are the keys that files of the pillar have, in the order in which the files are merged. A key
	// of several files is there several times. Keys of a file that another one includes below a key are
	// as in the file.
	Keys []KeySource
	// Other are the keys that no file has: those of external pillars. It may be nil.
	Other []string
	// Faults is how many faults the pillar has in _errors.
	Faults int
	// More reports whether there are more lines or keys than the trace has.
	More bool
}

// tracer records how a pillar comes about. A nil tracer records nothing.
type tracer struct {
	Trace
	key []string // the path of the only key that is looked for; nil: all keys of the first level
	// origins records where values come from, in place of lines and keys. It may be nil.
	origins *originLog
}

// addFile records the keys of a file. name is its SLS.
func (t *tracer) addFile(path, env, name string, v any) {
	m, ok := v.(*value.Map)
	if t == nil || t.origins != nil || !ok || name == "" { // a top file has no name
		return
	}

	if t.key != nil {
		if hasPath(m, t.key) {
			t.addKey(KeySource{Key: strings.Join(t.key, ":"), SLS: name, Env: env, File: path})
		}
		return
	}
	for _, key := range m.Keys() {
		if key != "include" {
			t.addKey(KeySource{Key: key, SLS: name, Env: env, File: path})
		}
	}
}

func (t *tracer) addKey(k KeySource) {
	if len(t.Keys) >= maxTraced {
		t.More = true
		return
	}
	if !slices.Contains(t.Keys, k) {
		t.Keys = append(t.Keys, k)
	}
}

// addLine records a line of a top file. err is why its target cannot be used; it may be nil.
func (t *tracer) addLine(env string, ch *chosen, matches bool, err error) {
	if t == nil {
		return
	}

	l := Line{
		Top:     ch.top,
		Env:     env,
		Target:  value.StrMax(ch.target, 200),
		Type:    ch.typ,
		SLS:     ch.sls,
		Matches: matches,
	}
	if err != nil {
		l.Fault = err.Error()
	}
	if t.addScopedLine(l) {
		return
	}
	if len(t.Lines) >= maxTraced {
		t.More = true
		return
	}
	t.Lines = append(t.Lines, l)
}

func hasPath(m *value.Map, path []string) bool {
	for i, part := range path {
		v, ok := m.Get(part)
		if !ok {
			return false
		}
		if m, ok = v.(*value.Map); !ok {
			return i == len(path)-1
		}
	}
	return true
}

var errNotTraced = errors.New("with the renderer yamlex, or the pillar_source_merging_strategy aggregate, Salt's Python makes the pillar: which file has which key is not known")

// Trace compiles the pillar of a minion as Compile does, without the memo, and returns how it comes
// about. If key is not "", the trace has only the files with this key, whose parts are separated by
// colons.
func (c *Compiler) Trace(ctx context.Context, req Request, key string) (Trace, error) {
	if needsPython(c.cfg.Strategy, c.cfg.Renderer) {
		return Trace{}, errNotTraced
	}

	n := c.newCompilation(ctx, req)
	n.trace = &tracer{}
	if key != "" {
		n.trace.key = strings.Split(key, ":")
	}
	n.withoutMemo = true
	defer n.giveUp(nil)
	defer n.closeSession()

	if err := n.chooseEnvs(); err != nil {
		return Trace{}, err
	}
	pillar, err := n.compilePillar()
	if cause := context.Cause(n.ctx); cause != nil {
		err = cause
	}
	if err != nil {
		return Trace{}, fmt.Errorf("trace the pillar of %s: %w", req.ID, err)
	}

	n.trace.addOther(pillar)
	n.trace.Faults = len(pillar.List("_errors"))
	return n.trace.Trace, nil
}

// addOther records the keys of a pillar that no file has.
func (t *tracer) addOther(pillar *value.Map) {
	if t.key != nil {
		if len(t.Keys) == 0 && hasPath(pillar, t.key) {
			t.Other = []string{strings.Join(t.key, ":")}
		}
		return
	}

	known := map[string]bool{"_errors": true}
	for _, k := range t.Keys {
		known[k.Key] = true
	}
	for _, key := range pillar.Keys() {
		if !known[key] && len(t.Other) < maxTraced {
			t.Other = append(t.Other, key)
		}
	}
}

// TopFile is a top file of states.
type TopFile struct{ Env, Path string }

// TraceTop returns the lines of top files of states. It renders the files as those of pillars, with the
// minion's grains and pillar. templates reports whether one of them is a template that needs Python:
// on the minion it may have another result.
func (c *Compiler) TraceTop(ctx context.Context, req Request, pillar *value.Map, tops []TopFile) (lines []Line, templates bool, err error) {
	n := c.newCompilation(ctx, req)
	n.pillar = pillar
	n.withoutMemo = true
	n.trace = &tracer{}
	defer n.giveUp(nil)
	defer n.closeSession()

	var faults []error
	for _, top := range tops {
		v, err := n.compileFile(top.Path, top.Env, "", nil)
		file, ok := v.(*value.Map)
		if err == nil && v != nil && !ok {
			err = errTop
		}
		if err == nil {
			err = n.traceTopFile(top.Env, file)
		}
		if err != nil { // its text may have parts of the pillar
			c.log.Warn("a top file cannot be used", append([]any{"minion", req.ID, "path", top.Path}, n.logAttrs(err)...)...)
			faults = append(faults, fmt.Errorf("the top file of %s cannot be used: the log of the master has the cause", top.Env))
		}
		if p, err := c.files.parsedFile(top.Path); err == nil && !p.plain {
			templates = true
		}
	}
	if cause := context.Cause(n.ctx); cause != nil {
		return nil, templates, cause
	}
	return n.trace.Lines, templates, errors.Join(faults...)
}

// traceTopFile records the lines of a top file of states.
func (c *compilation) traceTopFile(top string, file *value.Map) error {
	for k, body := range file.All() {
		env, ok := k.(string)
		targets, isMap := body.(*value.Map)
		if !ok || env == "include" || emptyIterable(body) || body == nil {
			continue
		}
		if !isMap {
			return errTop
		}

		for tgt, comps := range targets.All() {
			ch, _, err := choose(tgt, comps)
			if err != nil {
				return err
			}
			ch.top = top
			matches, err := c.matchesTarget(ch)
			c.trace.addLine(env, ch, matches, err)
		}
	}
	return nil
}

var errNoText = errors.New("the target is not a text")

// matchesTarget reports whether a target of a top file selects the minion.
func (c *compilation) matchesTarget(ch *chosen) (bool, error) {
	target, ok := ch.target.(string)
	if !ok {
		return false, errNoText
	}
	return c.compiler.cfg.Match(target, ch.typ, c.req.ID, c.grains, c.pillar, c.compiler.cfg.Nodegroups)
}
