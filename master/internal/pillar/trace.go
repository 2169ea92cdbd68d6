package pillar

import (
	"context"
	"errors"
	"fmt"

	"saltern/master/value"
)

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

// addLine records a line of a top file. err is why its target cannot be used; it may be nil.
func (l *originLog) addLine(env string, ch *chosen, matches bool, err error) {
	if l == nil {
		return
	}

	line := Line{
		Top:     ch.top,
		Env:     env,
		Target:  value.StrMax(ch.target, maxTarget),
		Type:    ch.typ,
		SLS:     ch.sls,
		Matches: matches,
	}
	if err != nil {
		line.Fault = err.Error()
	}

	switch {
	case matches && l.size <= maxOrigins:
		l.size++
		l.lines = append(l.lines, scopedLine{l.scope, line})
	case !matches && len(l.otherLines) < maxOtherLines:
		l.otherLines = append(l.otherLines, line)
	default:
		l.linesLost++
	}
}

// allLines returns the lines of all top files, first those that select the minion. It leaves lost ones out.
func (l *originLog) allLines() (lines []Line, lost int) {
	for _, line := range l.lines {
		lines = append(lines, line.Line)
	}
	return append(lines, l.otherLines...), l.linesLost
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
	n.trace = newOriginLog()
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
			c.log.Warn("a top file cannot be used", append([]any{"minion", req.ID, "path", top.Path}, n.logAttrs(err, top.Path)...)...)
			faults = append(faults, fmt.Errorf("the top file of %s cannot be used: the log of the master has the cause", top.Env))
		}
		if p, err := c.files.parsedFile(top.Path); err == nil && !p.plain {
			templates = true
		}
	}
	if cause := context.Cause(n.ctx); cause != nil {
		return nil, templates, cause
	}
	lines, _ = n.trace.allLines()
	return lines, templates, errors.Join(faults...)
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
