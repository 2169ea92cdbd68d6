package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	op "saltern/cmd/salt/optparse"
	"saltern/internal/control/toolrun"
	"saltern/internal/localsock"
	"saltern/internal/printable"
	"saltern/master/client"
)

// aliveTakes is how long the tool waits for an answer of this node's master before it runs on
// another node. Until then the tool must send no request that has an effect, because a frozen
// master would execute it later.
const aliveTakes = 3 * time.Second

// askingUser returns the user on whose behalf the tool asks the master.
func (t *tool) askingUser() string {
	if t.other != nil {
		return t.other.request.User
	}
	return client.CurrentUser(t.getenv)
}

// elsewhere runs the tool on another node of the cluster if this node's master does not answer or
// cannot store jobs. If done is false, no other node has run the tool, and the call continues here.
// Call elsewhere before the tool sends any request that has an effect.
func (t *tool) elsewhere(ctx context.Context) (done bool, err error) {
	if t.other != nil || t.cfg.Supervisor == "" {
		return false, nil
	}

	c := t.client(t.cfg.Timeout)
	defer c.Close()
	short, cancel := context.WithTimeout(ctx, aliveTakes)
	silent := c.Answers(short)
	cancel()

	if silent == nil || ctx.Err() != nil {
		return false, nil
	}

	fault := "does not answer"
	if errors.Is(silent, client.ErrUnwell) {
		fault = "can keep no jobs"
	}

	t.log.Debug("this node's master "+fault, "error", silent)
	body, err := t.forAnother()
	var resp *http.Response
	if err == nil {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		if resp, err = askSupervisor(ctx, t.cfg.Supervisor, body); err == nil {
			defer resp.Body.Close()
			fmt.Fprintf(t.stderr, "this node's master %s; asked %s\n", fault,
				printable.Brief(resp.Header.Get(toolrun.AskedHeader), 120))
			return true, t.relayOutput(ctx, cancel, resp.Body)
		}
	}

	if _, unknown := errors.AsType[*unknownError](err); unknown {
		if ctx.Err() != nil {
			return true, t.givenUp()
		}
		return true, err
	}

	fmt.Fprintf(t.stderr, "this node's master %s, and no other one can be asked: %s\n", fault,
		printable.Brief(err.Error(), 400))
	return false, nil
}

// forAnother returns the request with which another node runs this call.
func (t *tool) forAnother() ([]byte, error) {
	if err := t.checkPortable(); err != nil {
		return nil, err
	}
	if t.pinned {
		return nil, errors.New("options come from a Saltfile, which other nodes do not have")
	}

	words := t.words
	if v := t.getenv("SALT_NO_PARSE"); v != "" {
		words = append([]string{"--no-parse=" + v}, words...)
	}

	r := toolrun.Request{
		Tool:     t.optionParser.Prog,
		Words:    words,
		User:     t.askingUser(),
		Terminal: t.terminal,
		Columns:  min(t.columns, toolrun.MaxColumns),
	}

	return r.Encode()
}

// portable lists, by the names of their values, the options that have the same meaning on every
// node: they open no file and take no password. config_dir becomes the folder of the other node.
var portable = strings.Fields(`config_dir hard_crash log_level output output_indent no_color force_color state_output state_verbose
	timeout no_parse args_stdin module_executors executor_opts static progress failhard async subset verbose show_timeout show_jid
	batch batch_wait batch_safe_limit batch_safe_size return return_config return_kwargs doc args_separator cli_summary metadata
	start_event state_output_diff quiet jid skip_grains delimiter
	list_hosts pcre list grain grain_pcre nodegroup range compound pillar_target pillar_pcre ipcidr`)

// checkPortable returns an error that names the option for which this call cannot run on another
// node.
func (t *tool) checkPortable() error {
	allowed := map[string]bool{}
	for _, name := range portable {
		allowed[name] = true
	}

	for o := range t.optionParser.All {
		if t.values.Explicit(o.Dst()) && !allowed[o.Dst()] {
			return op.Error(fmt.Sprintf("%s is not possible on another node", o.Names[len(o.Names)-1]))
		}
	}

	for _, name := range []string{"eauth", "output_file"} { // the configuration may also set these options
		if t.values.Str(name) != "" {
			return op.Error(fmt.Sprintf("%s is not possible on another node", name))
		}
	}

	return nil
}

// unknownError means that it is unknown whether another node has run the tool.
type unknownError struct{ err error }

func (e *unknownError) Error() string {
	return fmt.Sprintf("this node's master does not answer, and whether another one has run this is not known: %v; "+
		"before you repeat it: salt-run jobs.list_jobs on another node", e.err)
}

func (e *unknownError) Unwrap() error { return e.err }

// askSupervisor asks the supervisor to run the tool on another node, and returns the supervisor's
// answer. Any error other than an unknownError means that no node has run the tool.
func askSupervisor(ctx context.Context, socket string, body []byte) (*http.Response, error) {
	sent := false
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		c, err := d.DialContext(ctx, "unix", socket)
		if err != nil {
			return nil, fmt.Errorf("applianced is not running: %w", err)
		}

		if cred, err := localsock.Peer(c); err != nil || cred.Uid != 0 && int(cred.Uid) != os.Geteuid() {
			return nil, errors.Join(fmt.Errorf("%s is not the supervisor's", socket), err, c.Close())
		}

		sent = true
		return c, nil
	}

	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://applianced"+toolrun.Path,
		bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("prepare the request: %w", err)
	}

	resp, err := (&http.Client{Transport: &http.Transport{
		DialContext:       dial,
		DisableKeepAlives: true,
		// This timeout bounds the search for a node that can run the tool.
		ResponseHeaderTimeout: 90 * time.Second,
	}}).Do(req)

	switch {
	case err != nil && sent:
		return nil, &unknownError{err}
	case err != nil:
		return nil, err
	case resp.StatusCode == http.StatusOK:
		return resp, nil
	}

	defer resp.Body.Close()
	var answer struct{ Error string }
	b, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err == nil {
		err = json.Unmarshal(b, &answer)
	}

	refused := errors.New(cmp.Or(answer.Error, resp.Status))
	if err != nil || resp.StatusCode >= http.StatusInternalServerError {
		return nil, &unknownError{refused}
	}

	return nil, refused
}

// relayOutput prints the output of the tool on the other node, and returns an error with the tool's
// exit code.
func (t *tool) relayOutput(ctx context.Context, cancel context.CancelFunc, from io.Reader) error {
	lost := time.AfterFunc(toolrun.Silence, cancel)
	defer lost.Stop()
	for {
		lost.Reset(toolrun.Silence)
		kind, data, err := toolrun.ReadFrame(from)
		inTime := lost.Stop() // stop the timer: a slow reader of our own output must not end the call
		if err != nil {
			return t.broken(ctx, !inTime, err)
		}

		switch kind {
		case toolrun.Stdout:
			_, err = t.stdout.Write(data)
		case toolrun.Stderr:
			_, err = t.stderr.Write(data)
		case toolrun.Exit:
			if data[0] == 0 {
				return nil
			}
			return exit(data[0])
		}

		if err != nil {
			return fmt.Errorf("write the result: %w", err)
		}
	}
}

// broken returns the error of a call whose result on the other node is unknown.
func (t *tool) broken(ctx context.Context, silent bool, err error) error {
	if ctx.Err() != nil && !silent {
		return t.givenUp()
	}
	return fmt.Errorf("the connection to the other node is lost (%w); the job may go on: salt-run jobs.list_jobs shows it",
		err)
}

// givenUp returns the error of a call that the user interrupted.
func (t *tool) givenUp() error {
	fmt.Fprint(t.stderr,
		"\nExiting gracefully on Ctrl-c\nWhat was started on another node may go on at the minions. To find it: salt-run jobs.list_jobs\n")
	return exit(exitGeneric)
}

// otherNode holds the call that this process runs for another node.
type otherNode struct {
	request toolrun.Request
	conf    string // folder of the configuration of the node that runs the tool
}

// moreReady is the OOM score adjustment of a tool that runs for another node: the kernel kills it
// early when memory is short.
const moreReady = "300"

// forOther runs a tool for another node and returns the exit code. The supervisor writes the
// request to standard input. The tool has only the rights of the master's account, under which the
// supervisor starts it.
func (e *env) forOther(ctx context.Context, args []string) int {
	if len(args) != 1 {
		fmt.Fprintf(e.stderr, "%s is for applianced\n", toolrun.Program)
		return exitUsage
	}

	r, err := toolrun.Read(e.stdin)
	if err != nil {
		fmt.Fprintln(e.stderr, printable.Text(err.Error()))
		return exitUsage
	}

	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(moreReady), 0) // if this fails, the supervisor's score stays
	here := *e
	here.stdin = strings.NewReader("")
	here.terminal = r.Terminal
	here.columns = r.Columns
	here.other = &otherNode{request: r, conf: args[0]}

	return here.runTool(ctx, r.Tool, r.Words)
}
