package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	op "saltern/cmd/salt/optparse"
	"saltern/master/client"
	"saltern/master/saltyaml"
	"saltern/master/value"
)

// saltCall is one call of salt.
type saltCall struct {
	*tool
	c     *client.Client
	req   client.Request
	codes []int64
	seen  []client.Return
	bar   *progressBar // nil: each return is printed
}

func (e *env) runSalt(ctx context.Context, words []string) int {
	p := e.saltParser()
	t, code := e.startTool(p, words, true)
	if t == nil {
		return code
	}
	s := &saltCall{tool: t}
	return t.exitCode(s.execute(ctx))
}

func (s *saltCall) execute(ctx context.Context) error {
	typ, err := targetType(s.values, s.optionParser.Groups)
	if err != nil {
		return err
	}

	if err := s.emptyOutputFile(); err != nil {
		return err
	}
	if s.values.Bool("config_dump") {
		b, err := saltyaml.Encode(s.raw)
		if err == nil {
			_, err = s.stdout.Write(b)
		}
		return err
	}

	if err := s.readArguments(typ); err != nil {
		return err
	}

	timeout := s.cfg.Timeout
	if n := s.values.Int("timeout"); n > 0 {
		timeout = time.Duration(n) * time.Second
	}

	if !s.values.Bool("preview_target") { // a preview works without a master
		if done, err := s.elsewhere(ctx); done {
			return err
		}
	}

	s.c = s.client(timeout)
	defer s.c.Close()
	s.req.Timeout = timeout
	s.static = s.values.Bool("static")

	if s.values.Bool("preview_target") { // Salt runs the job if it is a batch
		return s.preview(ctx)
	}
	batch := s.values.Str("batch")
	if batch != "" || s.static {
		return s.runBatch(ctx, batch)
	}

	if limit := s.values.Int("batch_safe_limit"); limit > 1 {
		ids, err := s.matched(s.req.Target, s.req.TargetType)
		if err != nil {
			return err
		}
		if len(ids) >= limit {
			s.println("\nNOTICE: Too many minions targeted, switching to batch execution.")
			return s.runBatch(ctx, s.values.Str("batch_safe_size"))
		}
	}

	if err := s.kwargs(ctx); err != nil {
		return err
	}
	if s.values.Bool("async") {
		return s.publishOnly(ctx)
	}

	return s.gather(ctx)
}

// readArguments reads target, function and arguments (salt/utils/parsers.py
// SaltCMDOptionParser).
func (s *saltCall) readArguments(typ string) error {
	args := s.args
	doc, preview := s.values.Bool("doc"), s.values.Bool("preview_target")
	if len(args) <= 1 && !doc && !preview {
		fmt.Fprint(s.stdout, s.optionParser.Help(s.columns))
	}

	if preview {
		args = append(args, "not_a_valid_command")
	}

	if doc {
		if len(args) == 0 {
			args = []string{"*"}
		}

		if len(args) < 2 || args[1] != "sys.doc" {
			args = slices.Insert(slices.Clone(args), 1, "sys.doc")
		}

		if len(args) > 3 {
			return op.Error("You can only get documentation for one method at one time.")
		}
	}

	if len(args) == 0 {
		fmt.Fprint(s.stderr, "\nCannot execute command without defining a target.\n\n")
		return exit(exitArguments)
	}

	s.req.Target, s.req.TargetType = args[0], "glob"
	if typ != "" {
		s.req.TargetType = typ
	}

	if typ == "list" {
		s.req.Target = splitList(args[0], true)
	}

	if len(args) == 1 {
		fmt.Fprint(s.stderr, "\nIncomplete options passed.\n\n")
		return exit(exitArguments)
	}

	noParse := map[string]bool{}
	for _, n := range splitNames(s.values.Str("no_parse")) {
		noParse[n] = true
	}

	if !strings.Contains(args[1], ",") {
		s.fun = args[1]
		s.req.Fun, s.req.Arg = args[1], client.ParseArgs(args[2:], noParse)
		return nil
	}

	funs := strings.Split(args[1], ",")
	arg, err := client.ParseCompound(funs, args[2:], s.values.Str("args_separator"), noParse)
	if err != nil {
		fmt.Fprintln(s.stderr, err)
		return exit(exitArguments)
	}

	s.req.Fun, s.req.Arg = value.List(funs), arg
	return nil
}

// splitNames splits a comma-separated list of names.
func splitNames(s string) (out []string) {
	for _, n := range strings.Split(s, ",") {
		if n = strings.TrimSpace(n); n != "" {
			out = append(out, n)
		}
	}
	return out
}

// splitList splits the target of -L at commas, or at blanks if there is no comma.
func splitList(s string, noBlanks bool) []any {
	var parts []string
	switch {
	case strings.Contains(s, ",") && noBlanks:
		parts = strings.Split(strings.ReplaceAll(s, " ", ""), ",")
	case strings.Contains(s, ","):
		parts = strings.Split(s, ",")
	default:
		parts = strings.Fields(s)
	}
	return value.List(parts)
}

// kwargs sets the fields that a job carries beside its arguments, in Salt's order.
func (s *saltCall) kwargs(ctx context.Context) error {
	k := value.NewMap("show_timeout", s.values.Bool("show_timeout"), "show_jid", s.values.Bool("show_jid"))
	token, err := s.savedToken()
	if err != nil {
		return err
	}

	if token != "" {
		k.Set("token", token)
	}

	k.Set("delimiter", s.values.Str("delimiter"))
	s.req.Return = s.values.Str("return")
	if r := s.values.Str("return_config"); r != "" {
		k.Set("ret_config", r)
	}

	for _, o := range [][2]string{{"return_kwargs", "ret_kwargs"}, {"module_executors", "module_executors"},
		{"executor_opts", "executor_opts"}, {"metadata", "metadata"}} {
		if text := s.values.Str(o[0]); text != "" {
			k.Set(o[1], client.Yamlify(text))
		}
	}

	if s.values.Bool("start_event") {
		k.Set("start_event", true)
	}

	if token == "" {
		cred, err := s.credentials(ctx, s.c)
		if err != nil {
			return err
		}
		k.Update(cred)
	}

	s.req.Kwargs = k
	return nil
}

func (s *saltCall) publishOnly(ctx context.Context) error {
	req, err := s.chooseSubset(ctx)
	var job client.Job
	if err == nil {
		job, err = s.c.Publish(ctx, req)
	}
	switch {
	case err == client.ErrNoMinions:
		s.println(err.Error())
		job.JID = "0"
	case err == client.ErrNoJob:
		job.JID = "0"
	case err != nil:
		return err
	}
	s.println("Executed command with job ID: " + job.JID)
	return nil
}

// chooseSubset returns the request of the job. With --subset its target is a list of random minions.
func (s *saltCall) chooseSubset(ctx context.Context) (client.Request, error) {
	req := s.req
	n := s.values.Int("subset")
	if n <= 0 {
		return req, nil
	}

	ids, err := s.c.Subset(ctx, req, n, rand.Shuffle)
	if err != nil {
		return req, err
	}
	req.Target = value.List(ids)
	req.TargetType = "list"
	return req, nil
}

// gather runs the job and prints each return as it arrives.
func (s *saltCall) gather(ctx context.Context) error {
	var jid string
	started := func(j client.Job) {
		jid = j.JID
		s.announce(j)
	}

	req, err := s.chooseSubset(ctx)
	o := s.returnOptions()
	var bad error
	var here *presence
	if err == nil {
		err = s.c.Run(ctx, req, started, func(r client.Return) bool {
			if r.Missing && !s.values.Bool("show_timeout") && !s.values.Bool("verbose") {
				return true
			}

			if r.Missing {
				if here == nil {
					here = s.presence()
				}
				if here.isDisconnected(r.ID) {
					r = client.MissingReturn(r.ID, r.JID, false)
				}
			}

			bad = s.returned(r, o)
			return bad == nil
		})
	}

	if s.bar != nil {
		s.bar.end()
	}

	switch {
	case bad != nil:
		return bad
	case errors.Is(err, context.Canceled):
		return s.interrupted(jid)
	case err == client.ErrNoMinions:
		s.println(err.Error())
		return s.showEmpty()
	case err == client.ErrNoJob:
		return s.showEmpty()
	case err != nil:
		return s.failed(err)
	}

	return s.finish(o)
}

// announce shows that a job has started, in the form that the options of the command line select.
func (s *saltCall) announce(j client.Job) {
	switch {
	case s.values.Bool("progress") && s.fun != "sys.doc":
		s.bar = &progressBar{
			out:     s.stderr,
			columns: s.columns,
			total:   len(j.Minions),
			began:   time.Now(),
		}
		s.bar.show()
	case s.values.Bool("verbose") && s.fun != "sys.doc":
		msg := "Executing job with jid " + j.JID
		s.println(msg + "\n" + strings.Repeat("-", len(msg)) + "\n")
	case s.values.Bool("show_jid"):
		s.println("jid: " + j.JID)
	}
}

func (s *saltCall) interrupted(jid string) error {
	if jid == "" {
		fmt.Fprintln(s.stderr, "\nExiting gracefully on Ctrl-c")
		return exit(exitGeneric)
	}
	fmt.Fprintf(s.stderr, "\nThis job's jid is: %s\nExiting gracefully on Ctrl-c\nThe minions may not have all finished running and any "+
		"remaining minions will return upon completion. To look up the return data for this job later, run the following "+
		"command:\n\nsalt-run jobs.lookup_jid %s\n", jid, jid)
	return exit(exitGeneric)
}

// showEmpty prints an empty result, because programs that read JSON expect a document.
func (s *saltCall) showEmpty() error {
	if s.fun != "sys.doc" {
		if err := s.display(value.NewMap(), "", 0, s.outputOptions()); err != nil {
			return err
		}
	}
	return s.nothing()
}

func (s *saltCall) nothing() error {
	fmt.Fprintln(s.stderr, "ERROR: No return received")
	return exit(exitNoReturn)
}

// failed prints an error of the master as a result, as Salt does, and returns the error for the exit
// code.
func (s *saltCall) failed(err error) error {
	var ce *client.Error
	if !errors.As(err, &ce) {
		return err
	}
	if ce.Message == "" {
		return s.nothing()
	}
	if e := s.display(ce.Message, "", 1, s.outputOptions()); e != nil {
		return e
	}
	return s.failureCode()
}

// failureCode returns the exit code for an error of the master. Salt exits with 0 for such an
// error, so scripts mistake a refused command for a success. Saltern exits with exitGeneric.
func (s *saltCall) failureCode() error { return exit(exitGeneric) }
