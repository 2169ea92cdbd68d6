package client

import (
	"context"
	"strings"
	"time"

	"saltern/master/event"
	"saltern/master/value"
)

// RunnerError reports why the master did not start a runner.
type RunnerError struct{ Err error }

func (e *RunnerError) Error() string { return e.Err.Error() }

// Unwrap returns the reason, an *[Error].
func (e *RunnerError) Unwrap() error { return e.Err }

// StartRunner asks the master to start a runner and returns the runner's job id. cred holds
// credentials or a token; if cred is empty, the client sends the key of the calling user. A
// *RunnerError means that the master refused. A Python master refuses requests without external
// authentication.
func (c *Client) StartRunner(
	ctx context.Context,
	fun string,
	arg []any,
	kwarg, cred *value.Map,
) (jid string, err error) {
	load := value.NewMap("cmd", "runner", "fun", fun, "arg", arg, "kwarg", kwarg)
	jid, _, err = c.startRunner(ctx, load, cred)
	return jid, err
}

// AnswerField in the load of a runner means that the caller reads the result from the answer.
// Without this field the master starts no runner whose result must not go on the event bus. Salt's
// clients do not set this field: they wait for the event at the end of the runner. No runner of
// this master or of an older one has an argument of this name.
const AnswerField = "__saltern_answer__"

// PageField in the load of a runner means that a page asks, which shows the result and asks again soon. The master
// answers such a list inline and keeps nothing of it. It gives no rights, so anybody may set it. Masters that do not
// know it, and runners that do not only list, are called as by everybody else.
const PageField = "__saltern_page__"

// listAnswer is how long the answer of a list may take: it may wait for its turn and read many jobs. The
// master ends the list earlier when this client disconnects.
const listAnswer = 100 * time.Second

// lateAnswer is how long the answer of a runner that compares may take. The master ends such a runner
// earlier (saltern_diff_timeout), and when this client disconnects.
const lateAnswer = time.Hour

// AnswersLate reports whether a runner may work for minutes, although its result is only in the
// answer to the request.
func AnswersLate(fun string) bool {
	return fun == "pillar.diff" || fun == "top.diff" || fun == "pillar.readers"
}

// startRunner works like StartRunner, with a complete load. data is the data of the end event if
// the runner has ended and its result must not go on the event bus; otherwise data is nil.
func (c *Client) startRunner(ctx context.Context, load, cred *value.Map) (jid string, data *value.Map, err error) {
	load = c.signed(load, cred)
	timeout := c.cfg.Timeout
	// the master answers these runners only when they have ended
	fun := load.Str("fun")
	lists := load.Bool(PageField) || strings.HasPrefix(fun, "fleet.") || fun == "presence.minions"
	switch {
	case strings.HasPrefix(fun, "cluster."):
		timeout = max(timeout, 40*time.Second)
	case AnswersLate(fun):
		timeout = max(timeout, lateAnswer)
	case lists:
		timeout = max(timeout, listAnswer)
	}

	reply, err := c.sendRequest(ctx, load, timeout)
	if err != nil {
		return "", nil, err
	}

	m, _ := reply.(*value.Map)
	if m != nil && m.Map("load") != nil {
		m = m.Map("load")
	}

	if err := ErrorIn(m); err != nil {
		return "", nil, &RunnerError{err}
	}

	if jid = m.Str("jid"); jid == "" {
		return "", nil, &RunnerError{&Error{Message: "the master does not start runners for this user: " +
			value.Repr(reply)}}
	}

	return jid, m.Map("data"), nil
}

// Runner starts a runner. It calls progress with each event of the runner and the last part of the
// event's tag, except for "new", "ret" and [event.OldFilesOfRun]. It returns the data of the ret
// event, with the complete result even if that was too large for an event. It waits for that event
// until ctx ends.
func (c *Client) Runner(
	ctx context.Context,
	fun string,
	arg []any,
	kwarg, cred *value.Map,
	progress func(suffix string, data *value.Map),
) (*value.Map, error) {
	if err := c.listen(ctx); err != nil {
		return nil, err
	}

	load := value.NewMap("cmd", "runner", "fun", fun, "arg", arg, "kwarg", kwarg, AnswerField, true)
	if c.cfg.Page {
		load.Set(PageField, true)
	}
	jid, data, err := c.startRunner(ctx, load, cred)
	if err != nil || data != nil { // the answer contains a result that no event may contain
		return data, err
	}

	prefix := "salt/run/" + jid + "/"
	c.events.setFilter(prefix)
	for {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-c.events.gaps:
			return nil, &Error{
				Kind: Unavailable,
				Message: "The connection to the master's events was lost while runner " + fun +
					" was at work; its job id is " + jid + ".",
			}
		case <-c.events.wake:
			e, _ := c.events.nextEvent(event.Prefix(prefix)) // if no event waits, e has no tag
			suffix, ok := strings.CutPrefix(e.Tag, prefix)
			switch {
			case !ok || suffix == "new":
			case suffix == event.OldFilesOfRun:
				if c.cfg.OldFiles != nil {
					c.cfg.OldFiles(readOldFiles(e.Data))
				}
			case suffix == "ret":
				return c.untrimmed(ctx, jid, e.Data, cred), nil
			default:
				progress(suffix, e.Data)
			}
		}
	}
}

// UserOfJob asks the master who started a job, a runner or a wheel function. It returns a map with
// user and [event.EauthField], or nil when the master does not know the job. The master answers
// only programs that send the key of its account and name the address on whose behalf they ask
// (source.With).
func (c *Client) UserOfJob(ctx context.Context, jid string) (*value.Map, error) {
	reply, err := c.sendRequest(ctx, value.NewMap("cmd", "saltern_job_user", "jid", jid), c.cfg.Timeout)
	if err != nil {
		return nil, err
	}
	m, _ := reply.(*value.Map) // a Salt master answers with the text of an error
	if _, ok := m.Get("user"); !ok {
		return nil, nil
	}
	return m, nil
}

// untrimmed returns data with the complete result from the job cache, if the result in data was
// trimmed to fit an event.
func (c *Client) untrimmed(ctx context.Context, jid string, data, cred *value.Map) *value.Map {
	if !event.Trimmed(data) {
		return data
	}

	reply, err := c.sendRequest(ctx, c.signed(value.NewMap("cmd", "saltern_runner_result", "jid", jid), cred),
		max(c.cfg.Timeout, 40*time.Second))
	m, _ := reply.(*value.Map)
	ret, ok := m.Get("return")
	if err != nil || !ok {
		c.cfg.Log.Warn("The result is larger than max_event_size, and the master has not kept it: large values are shown as VALUE_TRIMMED.",
			"jid", jid, "error", err)
		return data
	}

	data = data.Clone()
	data.Set("return", ret)
	return data
}

// signed adds the caller's credentials to a load: cred, or the key of the calling user if cred is
// empty.
func (c *Client) signed(load, cred *value.Map) *value.Map {
	if cred.Len() == 0 {
		cred = value.NewMap("key", c.key, "user", c.cfg.User)
		c.sayLogin(cred)
	}
	load.Update(cred)
	return load
}
