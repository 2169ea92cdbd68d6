package master

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"saltern/master/acl"
	"saltern/master/conf"
	"saltern/master/eauth"
	"saltern/master/event"
	"saltern/master/msgpack"
	"saltern/master/request"
)

// localMethods are the clear commands of tools on this host (salt/master.py
// ClearFuncs).
func (m *Master) localMethods() request.Table {
	return request.Table{
		"ping":                  {Local: true, Do: func(_ context.Context, c *request.Call) (any, error) { return pong(c.Load), nil }},
		"publish":               {Local: true, Do: m.onPublish},
		"wheel":                 {Local: true, Do: m.onWheel},
		"runner":                {Local: true, Do: m.onRunner},
		"saltern_runner_result": {Local: true, Do: m.onRunnerResult},
		"mk_token": {Local: true, Do: func(ctx context.Context, c *request.Call) (any, error) {
			return m.auth.MakeToken(ctx, c.Load)
		}},
		"get_token": {Local: true, Do: func(_ context.Context, c *request.Call) (any, error) { return m.auth.GetToken(c.Load), nil }},
	}
}

// maxPong bounds an echo, in bytes of its texts and in fields.
const (
	maxPong       = 1024
	maxPongFields = 16
)

// pong answers a ping. Salt's master sends the load back (salt/master.py
// ClearFuncs.ping); to a load that is not small and flat the answer is what every
// health check asks.
func pong(load *msgpack.Map) *msgpack.Map {
	size := 0
	for k, v := range load.All() {
		for _, x := range []any{k, v} {
			switch x := x.(type) {
			case string:
				size += len(x)
			case nil, bool, int64, float64:
			default:
				size = maxPong + 1
			}
		}
	}
	if size > maxPong || load.Len() > maxPongFields {
		return msgpack.NewMap("cmd", "ping")
	}
	return load
}

// caller proves who sent a load; the answer is nil when he is who he says.
func (m *Master) caller(ctx context.Context, load *msgpack.Map) (eauth.Caller, *msgpack.Map) {
	caller, err := m.auth.Check(ctx, load, load)
	var f *eauth.Failure
	if errors.As(err, &f) {
		return eauth.Caller{}, f.Map()
	}
	if err != nil {
		return eauth.Caller{}, (&eauth.Failure{Name: "EauthAuthenticationError", Message: "Authentication failure."}).Map()
	}
	return caller, nil
}

// admit proves the caller of a wheel or runner command and checks that he may
// call it. The answer is nil when he may.
func (m *Master) admit(ctx context.Context, form string, load *msgpack.Map, args []any, named *msgpack.Map) (user string, refusal *msgpack.Map) {
	fun := load.Str("fun")
	caller, refusal := m.caller(ctx, load)
	if refusal != nil {
		return "", refusal
	}
	if !caller.All {
		if !acl.Syntax(fun) && len(caller.Permissions) > 0 {
			return "", (&eauth.Failure{Name: "SaltInvocationError", Message: "A command invocation error occurred: Check syntax."}).Map()
		}
		if !acl.Special(caller.Permissions, form, fun, args, named) {
			m.quiet.Warn("caller may not call this", "user", caller.Name, "kind", caller.Kind, "form", form, "fun", fun)
			return "", (&eauth.Failure{Name: eauth.ErrorName(caller.Kind),
				Message: fmt.Sprintf(`Authentication failure of type "%s" occurred for user %s.`, caller.Kind, caller.Name)}).Map()
		}
	}
	return strings.TrimPrefix(caller.Name, "sudo_"), nil
}

// heard waits until tools that have connected to the event bus hear it; they
// connect first and then ask for what they want to hear of.
func (m *Master) heard(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	if err := m.sockets.Settle(ctx); err != nil {
		m.log.Warn("a tool may miss the first events of what it asks for", "error", err)
	}
}

// onWheel calls a wheel function and waits for it.
func (m *Master) onWheel(ctx context.Context, c *request.Call) (any, error) {
	load := c.Load
	args, named := callArguments(load)
	user, refusal := m.admit(ctx, "wheel", load, args, named)
	if refusal != nil {
		return refusal, nil
	}
	m.heard(ctx)
	fun, jid := load.Str("fun"), m.jids.New()
	tag := event.Tag("wheel", jid)
	data := msgpack.NewMap("fun", "wheel."+fun, "jid", jid, "tag", tag, "user", user)
	m.fire(tag+"/new", data)
	ret, err := m.callWheel(ctx, fun, args, named)
	data = data.Clone()
	if err != nil {
		m.log.Error("wheel function failed", "fun", fun, "user", user, "error", err)
	}
	ret, success := resultOf("wheel", fun, ret, err)
	data.Set("return", ret)
	data.Set("success", success)
	shown := data.Clone()
	shown.Set("return", conf.ShownKeys(ret)) // whom it is for has it in the answer
	m.keepRun(ctx, jid, shown)
	m.fire(tag+"/ret", shown)
	return msgpack.NewMap("tag", tag, "data", data), nil
}

// envelope fields of a wheel or runner load, which are no arguments.
var envelopeFields = map[string]bool{
	"cmd": true, "fun": true, "arg": true, "kwarg": true, "key": true, "user": true, "token": true, "eauth": true, "username": true,
	"password": true, "client": true, "full_return": true, "print_event": true, "timeout": true, "ts": true, "id": true,
}

// callArguments collects arguments from arg, kwarg and the top of the load
// (salt/client/mixins.py low).
func callArguments(load *msgpack.Map) ([]any, *msgpack.Map) {
	named := msgpack.NewMap()
	for k, v := range load.All() {
		if s, ok := k.(string); ok && !envelopeFields[s] && !strings.HasPrefix(s, "__") {
			named.Set(k, v)
		}
	}
	for k, v := range load.Map("kwarg").All() {
		if s, ok := k.(string); ok && !strings.HasPrefix(s, "__") {
			named.Set(k, v)
		}
	}
	args := load.List("arg")
	if n := len(args); n > 0 {
		if kw, ok := args[n-1].(*msgpack.Map); ok && kw.Bool("__kwarg__") {
			args = args[:n-1]
			for k, v := range kw.All() {
				if s, ok := k.(string); ok && !strings.HasPrefix(s, "__") {
					named.Set(k, v)
				}
			}
		}
	}
	return args, named
}

// runnerArguments finds the arguments of a runner. Salt's clients put them as
// {"arg": [...], "kwarg": {...}} into the kwarg of the load (salt/runner.py
// _reformat_low); others put named ones there.
func runnerArguments(load *msgpack.Map) ([]any, *msgpack.Map) {
	low := load.Map("kwarg")
	_, isList := get(low, "arg").([]any)
	if isList && low.Map("kwarg") != nil {
		return callArguments(msgpack.NewMap("arg", get(low, "arg"), "kwarg", get(low, "kwarg")))
	}
	return callArguments(load)
}

// onRunner starts a runner and answers at once; the result comes as an event
// (salt/client/mixins.py asynchronous).
func (m *Master) onRunner(ctx context.Context, c *request.Call) (any, error) {
	load := c.Load
	args, named := runnerArguments(load)
	user, refusal := m.admit(ctx, "runner", load, args, named)
	if refusal != nil {
		return refusal, nil
	}
	m.heard(ctx)
	fun, jid := load.Str("fun"), m.jids.New()
	tag := event.Tag("run", jid)
	data := msgpack.NewMap("fun", "runner."+fun, "jid", jid, "user", user, "fun_args", runnerArgs(args, named))
	m.fire(tag+"/new", data)
	run := func(ctx context.Context) *msgpack.Map {
		defer m.runners.track(data)()
		ret, err := m.runners.call(ctx, fun, args, named)
		data := data.Clone()
		if err != nil {
			m.log.Error("runner failed", "fun", fun, "user", user, "error", err)
		}
		result, success := resultOf("runner", fun, ret, err)
		data.Set("return", result)
		data.Set("success", success)
		m.keepRun(ctx, jid, data)
		m.fire(tag+"/ret", shownRun(fun, data))
		return data
	}
	if secretReturn(fun) {
		return msgpack.NewMap("tag", tag, "jid", jid, "data", run(ctx)), nil
	}
	started := m.background.Go(func(ctx context.Context) { run(ctx) })
	if !started {
		return (&eauth.Failure{Name: "SaltClientError", Message: "The master is busy with other runners. Try again later."}).Map(), nil
	}
	return msgpack.NewMap("tag", tag, "jid", jid), nil
}

func runnerArgs(args []any, named *msgpack.Map) []any {
	out := append([]any{}, args...)
	if named.Len() > 0 {
		out = append(out, named)
	}
	return out
}
