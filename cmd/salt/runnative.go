package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"saltern/internal/printable"
	"saltern/internal/release"
	"saltern/master/client"
	"saltern/master/event"
	"saltern/master/redact"
	"saltern/master/runner"
	"saltern/master/value"
)

// localRunners lists the runners that need only the configuration, the event bus and a terminal. They run
// in this process, so they work without a running master.
var localRunners = map[string]bool{
	"test.arg": true, "test.raw_arg": true, "test.metasyntactic": true, "test.stdout_print": true, "test.sleep": true,
	"test.stream": true, "test.get_opts": true, "event.send": true, "state.event": true, "config.get": true, "error.error": true,
}

// masterRunners lists the localRunners that the master can also run. If the master runs them, it
// stores the result in the job cache.
var masterRunners = map[string]bool{"test.arg": true, "test.raw_arg": true, "test.metasyntactic": true}

// splitKwargs splits parsed arguments into the positional ones and the keyword arguments at their
// end.
func splitKwargs(args []any) ([]any, *value.Map) {
	if n := len(args); n > 0 {
		if m, ok := args[n-1].(*value.Map); ok && m.Bool("__kwarg__") {
			m = m.Clone()
			m.Delete("__kwarg__")
			return args[:n-1], m
		}
	}
	return args, value.NewMap()
}

// native runs a built-in function. done is false when Python must run it.
func (r *runCall) native(ctx context.Context, fun string) (done bool, err error) {
	table := runner.New()
	noParse := map[string]bool{}
	for _, n := range splitNames(r.values.Str("no_parse")) {
		noParse[n] = true
	}

	if fun == "saved.run" {
		keepFields(r.args[1:], noParse)
	}

	args, kwargs := splitKwargs(client.ParseTextArgs(r.args[1:], noParse, runner.IsText(fun)))
	known := table.Has(fun) || runner.OfMaster(fun) || runner.OfCluster(fun) && r.cfg.ClusterID != ""

	// Python's salt-run stores arguments in the job cache unchanged. The master hides secrets, so a
	// call with a secret goes to the master.
	secret := redact.Of(fun, args, kwargs).Found()
	eauth := r.values.Str("eauth") != "" // with --eauth Python's salt-run would ask the master, too
	if !known && !secret && !eauth {
		return false, nil
	}

	timeout := r.cfg.Timeout
	if r.values.Explicit("timeout") && r.values.Int("timeout") > 0 {
		timeout = time.Duration(r.values.Int("timeout")) * time.Second
	}

	c := r.client(timeout)
	defer c.Close()
	if localRunners[fun] && !(masterRunners[fun] && c.MasterIsUp()) && !eauth && !r.values.Bool("async") {
		return true, r.runLocally(ctx, c, table, fun, args, kwargs)
	}

	if done, err := r.elsewhere(ctx); done {
		return true, err
	}

	err = r.remote(ctx, c, fun, args, kwargs)
	var refused *client.RunnerError
	var ce *client.Error
	switch {
	case eauth && errors.As(err, &refused):
		return true, r.showRefusal(refused)
	case errors.As(err, &refused), errors.As(err, &ce) && !c.MasterIsUp():
		r.log.Debug("left to Python", "fun", fun, "error", err)
		_, none := r.pythonSaltRun()
		if none == nil && !strings.HasPrefix(fun, "auth.") { // Python can run the function, unless it is about log-ins
			if secret {
				fmt.Fprintln(r.stderr,
					"warning: the master does not run this; Python's salt-run does, and writes the secret among the arguments into the job cache")
			}
			return false, nil
		}

		fmt.Fprintln(r.stderr, err)
		return true, exit(exitUnavailable)
	case errors.Is(err, context.Canceled):
		fmt.Fprintln(r.stderr, "\nExiting gracefully on Ctrl-c")
		return true, exit(exitGeneric)
	}

	return true, err
}

// keepFields adds the fields of a saved job to the arguments that stay text as it was typed, since the
// job knows which of them are numbers: 1.10 and 007 are no numbers for it.
func keepFields(words []string, noParse map[string]bool) {
	for _, w := range words {
		if name, _, ok := client.ParseKwarg(w); ok && !slices.Contains([]string{"test", "fields", "revision"}, name) {
			noParse[name] = true
		}
	}
}

func (r *runCall) remote(ctx context.Context, c *client.Client, fun string, args []any, kwargs *value.Map) error {
	cred := value.NewMap()
	if r.values.Str("eauth") != "" {
		tok, err := r.savedToken()
		if err != nil {
			return err
		}
		if tok == "" && r.knownSystem(r.values.Str("eauth")) != nil {
			return exit(exitNoReturn)
		}

		if tok != "" {
			cred.Set("token", tok)
		} else if cred, err = r.credentials(ctx, c); err != nil {
			return err
		}
	}

	if r.values.Bool("async") {
		jid, err := c.StartRunner(ctx, fun, args, kwargs, cred)
		if err != nil {
			return err
		}
		r.log.Warn("Running in asynchronous mode. Results of this execution may be collected by attaching to the master event bus or " +
			"by examining the master job cache, if configured. This execution is running under tag salt/run/" + jid)
		return nil
	}

	data, err := c.Runner(ctx, fun, args, kwargs, cred, func(suffix string, data *value.Map) {
		if !r.printsEvent(suffix) {
			return
		}
		if e := r.showResult(value.NewMap("suffix", suffix, "event", data), ""); e != nil {
			r.log.Error("cannot show progress", "error", e)
		}
	})
	if err != nil {
		return err
	}

	return r.result(data)
}

// printsEvent reports whether salt-run prints an event of the runner that it waits for. Like Salt's
// salt-run, it prints what runners report as their progress, and nothing when a log-in starts the
// runner (salt/client/mixins.py print_async_event, cmd_sync). Events about the steps of an
// orchestration are for readers of the bus: it does not print them.
func (r *runCall) printsEvent(suffix string) bool {
	return suffix == "progress" && r.values.Str("eauth") == ""
}

// runLocally runs a function in this process and fires its events, if there is an event bus.
func (r *runCall) runLocally(
	ctx context.Context,
	c *client.Client,
	table *runner.Table,
	fun string,
	args []any,
	kwargs *value.Map,
) error {
	jid := r.values.Str("jid")
	if jid == "" {
		jid = newJID(time.Now())
	}

	given := redact.Of(fun, args, kwargs)
	data := value.NewMap("fun", "runner."+fun, "jid", jid, "user", r.askingUser(), event.EauthField, "",
		"fun_args", given.FunArgs())
	tell := func(part string, data *value.Map) {
		if !c.MasterIsUp() {
			return
		}
		if err := c.Fire(ctx, "salt/run/"+jid+"/"+part, data); err != nil {
			r.log.Debug("runner event not fired", "jid", jid, "error", err)
		}
	}

	tell("new", data)
	env := &runner.Env{
		Events:  runner.OnSockets(r.cfg.SockDir, c.Fire),
		Options: r.raw,
		Version: release.Salt,
		Out:     r.stdout,
		Log:     r.log,
		Progress: func(d *value.Map) {
			d = d.Clone()
			d.Set("_stamp", event.Stamp(time.Now()))
			tell("progress", d)
			if err := r.showResult(value.NewMap("suffix", "progress", "event", d), ""); err != nil {
				r.log.Error("cannot show progress", "error", err)
			}
		},
	}

	ret, err := table.Call(ctx, env, fun, args, kwargs)
	if errors.Is(err, context.Canceled) {
		return err
	}

	data = data.Clone()
	data.Set("return", ret)
	data.Set("success", err == nil)
	if usage := runner.Result(err); usage != nil {
		data.Set("return", usage)
		data.Set("success", true)
	} else if err != nil {
		data.Set("return", err.Error())
		data.Set("retcode", int64(1))
	}

	shown := data.Clone()
	shown.Set("return", given.Result(data.Value("return")))
	tell("ret", shown)
	return r.result(data)
}

func (r *runCall) showResult(v any, outputter string) error {
	if r.values.Bool("quiet") {
		return nil
	}
	return r.display(v, outputter, 0, r.outputOptions())
}

// showRefusal prints why the master refused the call, as a result: on standard output and in the
// form of --out, as Salt does (salt/runner.py Runner.run). It returns the error for the exit code.
func (r *runCall) showRefusal(refused error) error {
	if err := r.showResult(printable.Text(refused.Error()), "nested"); err != nil {
		return err
	}
	return exit(exitGeneric)
}

// result prints the return of a runner and returns the error for its exit code (salt/client/mixins.py
// print_async_event, salt/cli/run.py).
func (r *runCall) result(data *value.Map) error {
	ret, _ := data.Get("return")
	out := data.Str("outputter")
	v := ret
	if m, ok := ret.(*value.Map); ok {
		inner, hasData := m.Get("data")
		name, hasOut := m.Get("outputter")
		if hasOut {
			out = value.Str(name)
			if name == nil {
				out = ""
			}
		}

		if hasOut && hasData && m.Len() == 2 {
			v = inner
		}
	}

	if err := r.showResult(v, out); err != nil {
		return err
	}

	if code, ok := retcode(data); ok {
		return exitIf(code)
	}

	if m, ok := ret.(*value.Map); ok {
		if code, ok := retcode(m); ok {
			return exitIf(code)
		}
		if code, ok := retcode(m.Map("data")); ok {
			return exitIf(code)
		}
	}

	if s, ok := data.Get("success"); ok && s == false {
		if _, isText := ret.(string); isText {
			return exit(exitGeneric)
		}
	}

	return nil
}

func retcode(m *value.Map) (int64, bool) { return m.Int("retcode") }

func exitIf(code int64) error {
	if code == 0 {
		return nil
	}
	return exit(int(code & 0xff))
}
