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
	maxOutputter = time.Minute // time limit for formatting one value
	maxShown     = 64 << 20    // bytes of one formatted value
)

var outputterName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,63}$`)

// ownOutputter reports whether Python must format with the outputter name. It must if the
// administrator has a module of that name. It must also if the administrator has any modules and
// the name is not built in, because a module may declare another name than its file's.
func (t *tool) ownOutputter(name string) bool {
	if !outputterName.MatchString(name) {
		return false
	}
	own := t.modules("output", t.cfg.OutputterDirs...)
	return slices.Contains(own, name) || len(own) > 0 && !output.Known(name)
}

// showByPython formats a value with a Python outputter. It returns false if the outputter does not
// exist or Python fails; it logs a failure.
func (t *tool) showByPython(name string, v any, o output.Options) (string, bool) {
	if t.python == nil {
		t.python = startOutput(t.pythons(), pyrunner.Layer(t.cfg.PythonLayer))
	}

	if o.Terminal && o.StripEscapes {
		v = safeForTerminal(v)
	}

	opts := value.NewMap("color", o.Color, "strip_colors", o.StripEscapes, "state_output", o.StateOutput, "state_verbose", o.StateVerbose,
		"state_output_diff", o.StateDiff, "fun", t.fun)
	switch {
	case o.Indent.Pretty:
		opts.Set("output_indent", "pretty")
	case o.Indent.Set:
		opts.Set("output_indent", int64(o.Indent.Width))
	}

	reply, err := t.python.askPython(value.NewMap("config", t.cfg.Path, "out", name, "data", v, "retcode",
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

// removedOutputters lists the outputters that no longer exist, or that Saltern does not support, each with the
// reason.
var removedOutputters = map[string]string{
	"progress": "there is no progress bar here", "overstatestage": "Salt 3008 has it no more", "virt_query": "Salt 3008 has it no more",
	"dson": "Salt 3008 has it no more", "pony": "Salt 3008 has it no more",
}

// unknownOutputter warns that the outputter nested is used in place of name. Like Salt it does not
// warn about "grains", which old minions request.
func (t *tool) unknownOutputter(name string) {
	why, known := removedOutputters[name]
	switch {
	case name == "grains":
	case known:
		t.log.Error("The outputter " + name + " is not there: " + why + "; fall back to nested")
	default:
		t.log.Error("Invalid outputter " + name + " specified, fall back to nested")
	}
}

// safeForTerminal returns a value without control sequences, because the administrator's outputters
// print texts unchanged.
func safeForTerminal(v any) any {
	switch v := v.(type) {
	case string:
		return printable.Text(v)
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = safeForTerminal(e)
		}
		return out
	case *value.Map:
		out := value.NewMap()
		for k, e := range v.All() {
			if s, ok := k.(string); ok {
				k = printable.Line(s)
			}
			out.Set(k, safeForTerminal(e))
		}

		return out
	}

	return v
}

// pythons returns the interpreters that may have Salt's library, in the order in which to try them.
// It returns only the configured interpreter if there is one, otherwise only that of the configured
// salt-run, otherwise the usual interpreters.
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

// pythonOutput is a Python process that formats values until the end of the call. Only one
// goroutine uses it.
type pythonOutput struct {
	kept *pyrunner.Kept
	err  error // the failure that ended the process; nil while it works
}

// startOutput starts the first interpreter that has Salt's library. If that fails, the returned
// process has the error in err. layer is a folder of additional packages, or "".
func startOutput(pythons []string, layer string) *pythonOutput {
	kept, err := pyrunner.Keep(context.Background(),
		pyrunner.KeptConfig{Pythons: pythons, Program: outputterScript, Layer: layer})
	return &pythonOutput{kept, err}
}

// askPython sends a request to the process and returns the answer.
func (p *pythonOutput) askPython(m *value.Map) (*value.Map, error) {
	if p.err != nil {
		return nil, p.err
	}
	reply, err := p.kept.Ask(context.Background(), m, maxShown, maxOutputter)
	if err != nil {
		p.stopPython()
		p.err = err
	}
	return reply, err
}

// stopPython ends the process. p may be nil: there is no process.
func (p *pythonOutput) stopPython() {
	if p != nil && p.kept != nil {
		p.kept.Close()
		p.kept = nil
	}
}
