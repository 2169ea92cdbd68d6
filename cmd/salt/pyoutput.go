package main

import (
	"context"
	_ "embed"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"time"

	"saltern/internal/printable"
	"saltern/master/output"
	"saltern/master/pyrunner"
	"saltern/master/value"
)

//go:embed outputter.py
var outputterScript string

const (
	maxOutputter = time.Minute // for one value
	maxShown     = 64 << 20    // bytes of one answer
)

var outputterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// ownOutputter reports whether an outputter has to be asked for in Python: the
// administrator has one of this name, or some, one of which may call itself so.
// Without any no Python is started, whatever name is given.
func (t *tool) ownOutputter(name string) bool {
	if !outputterName.MatchString(name) {
		return false
	}
	own := t.modules("output", t.cfg.OutputterDirs...)
	return slices.Contains(own, name) || len(own) > 0 && !output.Known(name)
}

// showByPython shows a value by an outputter of Python's. The second result is
// false when there is no such outputter, or it cannot be asked, which is logged.
func (t *tool) showByPython(name string, v any, o output.Options) (string, bool) {
	if t.python == nil {
		t.python = startOutput(t.pythons(), pyrunner.Layer(t.cfg.PythonLayer))
	}

	if o.Terminal && o.StripEscapes {
		v = safe(v)
	}

	opts := value.NewMap("color", o.Color, "strip_colors", o.StripEscapes, "state_output", o.StateOutput, "state_verbose", o.StateVerbose,
		"state_output_diff", o.StateDiff, "fun", t.fun)
	switch {
	case o.Indent.Pretty:
		opts.Set("output_indent", "pretty")
	case o.Indent.Set:
		opts.Set("output_indent", int64(o.Indent.Width))
	}

	reply, err := t.python.ask(value.NewMap("config", t.cfg.Path, "out", name, "data", v, "retcode",
		int64(o.Retcode), "opts", opts))
	if err == nil {
		if text := reply.Str("error"); text != "" {
			err = errors.New(text)
		}
	}

	if err != nil {
		t.log.Error("The outputter " + name + " cannot be used, fall back to nested: " + err.Error())
		return "", false
	}

	_, ok := reply.Get("text")
	if !ok {
		t.unknownOutputter(name)
	}

	return reply.Str("text"), ok
}

// gone are outputters of older releases of Salt, and one that needs a terminal.
var gone = map[string]string{
	"progress": "there is no progress bar here", "overstatestage": "Salt 3008 has it no more", "virt_query": "Salt 3008 has it no more",
	"dson": "Salt 3008 has it no more", "pony": "Salt 3008 has it no more",
}

// unknownOutputter says that nested is used. Salt is silent about grains, of
// which old minions ask.
func (t *tool) unknownOutputter(name string) {
	why, known := gone[name]
	switch {
	case name == "grains":
	case known:
		t.log.Error("The outputter " + name + " is not there: " + why + "; fall back to nested")
	default:
		t.log.Error("Invalid outputter " + name + " specified, fall back to nested")
	}
}

// safe is a value without what must not reach a terminal: outputters of the
// administrator print texts as they are.
func safe(v any) any {
	switch v := v.(type) {
	case string:
		return printable.Text(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = safe(e)
		}
		return out
	case *value.Map:
		out := value.NewMap()
		for k, e := range v.All() {
			if s, ok := k.(string); ok {
				k = printable.Line(s)
			}
			out.Set(k, safe(e))
		}

		return out
	}

	return v
}

// pythons are those to try for Salt's library: the one that is named, the one of
// a salt-run that is named, or the usual ones.
func (t *tool) pythons() []string {
	for _, p := range []string{t.cfg.RendererPython, t.getenv("SALTERN_RENDERER_PYTHON")} {
		if p != "" {
			return []string{p}
		}
	}
	for _, p := range []string{t.getenv("SALTERN_PYTHON_SALT_RUN"), t.cfg.SaltRun} {
		if p != "" && pyrunner.Of(p) != "" {
			return []string{pyrunner.Of(p)}
		}
	}
	return pyrunner.Usual(exec.LookPath)
}

// pythonOutput is a Python that shows values. One serves all of a call. It is
// used by one goroutine.
type pythonOutput struct {
	kept *pyrunner.Kept
	err  error // why it cannot be asked
}

// startOutput starts the first of the Pythons that has Salt. layer has more packages,
// "" for none.
func startOutput(pythons []string, layer string) *pythonOutput {
	kept, err := pyrunner.Keep(context.Background(),
		pyrunner.KeptConfig{Pythons: pythons, Program: outputterScript, Layer: layer})
	return &pythonOutput{kept, err}
}

// ask sends a request and waits for its answer.
func (p *pythonOutput) ask(m *value.Map) (*value.Map, error) {
	if p.err != nil {
		return nil, p.err
	}
	reply, err := p.kept.Ask(context.Background(), m, maxShown, maxOutputter)
	if err != nil {
		p.end()
		p.err = err
	}
	return reply, err
}

// end ends the Python. It may be called on none.
func (p *pythonOutput) end() {
	if p != nil && p.kept != nil {
		p.kept.Close()
		p.kept = nil
	}
}
