package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	op "saltern/cmd/salt/optparse"
	"saltern/master/pyrunner"
	"saltern/master/runner"
)

func (e *env) runParser() *op.Parser {
	p := e.parser("salt-run", "[options] <function> [arguments]", "Run functions of the master.")
	out := outputOptions("salt-run")
	out.Options = append(out.Options,
		op.Option{Names: []string{"--quiet"}, Default: false, Help: "Do not show results."})
	p.Options = append(p.Options,
		timeoutOption(1), argsStdin, noParseOption(e.getenv),
		op.Option{Names: []string{"--jid"}, Kind: op.Text, Help: "Use this job id."},
		op.Option{
			Names:   []string{"-d", "--doc", "--documentation"},
			Dest:    "doc",
			Default: false,
			Help:    "Show the documentation of a function or module.",
		},
		op.Option{Names: []string{"--async"}, Default: false, Help: "Start the function and do not wait for it."},
		op.Option{Names: []string{"--skip-grains"}, Default: false, Help: "Accepted for compatibility."},
	)

	p.Groups = []op.Group{logOptions("-l", "log_file"), out,
		{Title: "Profiling support", Options: []op.Option{
			{
				Names:   []string{"--profiling-path"},
				Kind:    op.Text,
				Default: "/tmp/stats",
				Help:    "Accepted for compatibility.",
			},
			{
				Names:   []string{"--enable-profiling"},
				Dest:    "profiling_enabled",
				Default: false,
				Help:    "Accepted for compatibility.",
			},
		}}, eauthOptions()}

	return p
}

// runCall is one call of salt-run.
type runCall struct {
	*tool

	search      sync.Once // runs the search for Python's salt-run, which sets the next two fields
	saltRunPath string
	noSaltRun   error
}

func (e *env) saltRun(ctx context.Context, words []string) int {
	p := e.runParser()
	t, code := e.startTool(p, words, true)
	if t == nil {
		return code
	}
	r := &runCall{tool: t}
	return t.exitCode(r.execute(ctx))
}

func (r *runCall) execute(ctx context.Context) error {
	if r.values.Bool("doc") && len(r.args) > 1 {
		return op.Error("You can only get documentation for one method at one time")
	}

	if jid := r.values.Str("jid"); jid != "" && !isJID(jid) {
		return op.Error("'" + jid + "' is not a valid JID")
	}
	if r.values.Bool("doc") {
		return r.showDocs(ctx)
	}
	if len(r.args) == 0 {
		return r.python(ctx)
	}

	if err := r.emptyOutputFile(); err != nil {
		return err
	}

	done, err := r.native(ctx, r.args[0])
	if done {
		return err
	}

	return r.python(ctx)
}

// showDocs shows the documentation of functions as Salt's salt-run does (salt/runner.py
// print_docs). The documentation of Salt's functions is in Python: if there is no Python, showDocs
// shows only how these functions are called. Functions that Salt does not have come first.
func (r *runCall) showDocs(ctx context.Context) error {
	asked := ""
	if len(r.args) > 0 {
		asked = r.args[0]
	}

	_, noPython := r.pythonSaltRun()
	docs := runner.Docs(asked)
	shown := 0
	for _, name := range slices.Sorted(maps.Keys(docs)) {
		doc := docs[name]
		if doc.About == "" && noPython == nil {
			continue
		}

		shown++
		text := name + ":\n\n"
		if doc.About != "" {
			text += "    " + doc.About + "\n\n"
		}
		fmt.Fprintf(r.stdout, "%s    Usage:\n\n        %s\n\n", text, doc.Usage)
	}

	if noPython != nil && shown == 0 {
		return r.unavailable(noPython)
	}
	if noPython != nil || docs[asked].About != "" {
		return nil
	}
	return r.python(ctx)
}

// unavailable prints why the requested function cannot be run or described, and returns the error
// for the exit code.
func (r *runCall) unavailable(why error) error {
	fun := ""
	if len(r.args) > 0 {
		fun = r.args[0]
	}
	fmt.Fprintf(r.stderr, "'%s' is not available: %v\n", fun, why)
	return exit(exitUnavailable)
}

func isJID(s string) bool {
	base, pid, _ := strings.Cut(s, "_")
	return len(base) == 20 && strings.Trim(base+pid, "0123456789") == ""
}

// python replaces this process by the salt-run of Python's Salt, with the same command line.
func (r *runCall) python(ctx context.Context) error {
	path, err := r.pythonSaltRun()
	if err != nil {
		return r.unavailable(err)
	}

	r.renewFiles(ctx)
	env := os.Environ()
	if layer := pyrunner.Layer(r.cfg.PythonLayer); layer != "" {
		env = append(slices.DeleteFunc(env, func(v string) bool { return strings.HasPrefix(v, "PYTHONPATH=") }),
			"PYTHONPATH="+strings.TrimPrefix(r.getenv("PYTHONPATH")+":"+layer, ":"))
	}

	program, args := r.pythonCommand(path)
	err = syscall.Exec(program, args, env)
	return fmt.Errorf("run %s: %w", path, err)
}

var errNoPython = errors.New("it is not one of the built-in functions, and no salt-run of Python was found " +
	"(set saltern_salt_run in the configuration or SALTERN_PYTHON_SALT_RUN)")

// pythonSaltRun returns the path of Python's salt-run, for which it searches once.
func (r *runCall) pythonSaltRun() (string, error) {
	r.search.Do(func() { r.saltRunPath, r.noSaltRun = r.findSaltRun() })
	return r.saltRunPath, r.noSaltRun
}

// findSaltRun searches the environment, the configuration, the folder of the Python that renders, and
// PATH for Python's salt-run. It never returns this program itself.
func (r *runCall) findSaltRun() (string, error) {
	if r.other != nil {
		return "", errNoPython
	}

	for _, p := range []string{r.getenv("SALTERN_PYTHON_SALT_RUN"), r.cfg.SaltRun} {
		if p == "" {
			continue
		}
		if !runnable(p) {
			return "", fmt.Errorf("%s cannot be run", p)
		}
		return p, nil
	}

	var dirs []string
	for _, py := range []string{r.cfg.RendererPython, r.getenv("SALTERN_RENDERER_PYTHON")} {
		if filepath.IsAbs(py) {
			dirs = append(dirs, filepath.Dir(py))
		}
	}

	dirs = append(dirs, filepath.SplitList(r.getenv("PATH"))...)
	for _, d := range dirs {
		if p := filepath.Join(d, "salt-run"); filepath.IsAbs(d) && runnable(p) && !isOwnProgram(p) {
			return p, nil
		}
	}

	return "", errNoPython
}

func runnable(p string) bool {
	st, err := os.Stat(p)
	return err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0
}

func isOwnProgram(p string) bool {
	exe, err := os.Executable()
	if err != nil {
		return false
	}
	a, errA := os.Stat(exe)
	b, errB := os.Stat(p)
	return errA == nil && errB == nil && os.SameFile(a, b)
}
