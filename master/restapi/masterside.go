package restapi

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"time"

	"saltern/master/client"
	"saltern/master/value"
)

// runnerCall returns the function and the arguments of a runner call in low data. The arguments are
// those in arg, those in kwarg, and all other names except those in exclude (salt/runner.py
// _reformat_low).
func runnerCall(low *value.Map, exclude ...string) (fun string, arguments *value.Map) {
	rest := low.Clone()
	fun, _ = rest.Value("fun").(string)
	for _, k := range append(exclude, "fun", "arg", "kwarg", "username", "password", "eauth", "token", "client",
		"user", "key") {
		rest.Delete(k)
	}

	args, named := client.SplitArgs(low.List("arg"), func(_, text string) any { return client.Yamlify(text) })
	if m := low.Map("kwarg"); m != nil {
		named.Update(m)
	}

	named.Update(rest)
	return fun, value.NewMap("arg", args, "kwarg", named)
}

func hasFun(low *value.Map, name string) error {
	if _, ok := low.Get("fun"); !ok {
		return &failure{http.StatusBadRequest, name + " takes at least 1 argument (0 given)"}
	}
	return nil
}

// callRunner calls a runner and waits for its result.
func (s *Server) callRunner(ctx context.Context, in call) (any, error) {
	if err := hasFun(in.low, "runner"); err != nil {
		return nil, err
	}

	limit := time.Duration(s.opts.Timeout) * time.Second
	if v := in.low.Value("timeout"); v != nil {
		n, err := strconv.ParseFloat(value.StrMax(v, 100), 64)
		if err != nil || !(n >= 0) {
			return nil, invalid("timeout must be a number of seconds.")
		}

		if err := s.mayWait("timeout", n); err != nil {
			return nil, err
		}

		limit = time.Duration(n * float64(time.Second))
	}

	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fun, arguments := runnerCall(in.low, "timeout", "full_return")
	c := s.clientFor(in)
	defer c.Close()

	data, err := c.Runner(ctx, fun, []any{}, arguments, credentials(in.low), func(string, *value.Map) {})
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	if value.Truth(in.low.Value("full_return")) {
		return value.NewMap("data", data, "tag", "salt/run/"+data.Str("jid")+"/ret"), nil
	}

	return data.Value("return"), nil
}

// startRunner starts a runner and returns without waiting for it.
func (s *Server) startRunner(ctx context.Context, in call) (any, error) {
	if err := hasFun(in.low, "runner_async"); err != nil {
		return nil, err
	}
	fun, arguments := runnerCall(in.low)
	c := s.clientFor(in)
	defer c.Close()
	jid, err := c.StartRunner(ctx, fun, []any{}, arguments, credentials(in.low))
	if err != nil {
		return nil, err
	}
	return value.NewMap("tag", "salt/run/"+jid, "jid", jid), nil
}

// callWheel calls a wheel function.
func (s *Server) callWheel(ctx context.Context, in call) (any, error) {
	if err := hasFun(in.low, "wheel"); err != nil {
		return nil, err
	}

	load := value.NewMap()
	for k, v := range in.low.All() {
		if name, ok := k.(string); ok && (!strings.HasPrefix(name, "__") || name == "__kwarg__") {
			load.Set(name, v)
		}
	}

	load.Set("cmd", "wheel")
	load.Delete("key") // drop the key of a system user: only users of the master's host have such a key
	c := s.clientFor(in)
	defer c.Close()

	v, err := c.Ask(ctx, load)
	if err != nil {
		return nil, err
	}

	if m, ok := v.(*value.Map); ok {
		if err := client.ErrorIn(m); err != nil {
			return nil, err
		}
		return m, nil
	}

	return nil, &failure{http.StatusServiceUnavailable, "The master refused the call for now: " + value.StrMax(v, 100)}
}

// startWheel calls a wheel function and waits for its end; wheel functions are short. It returns
// only the job id and the tag of the event that announced the end. Salt answers at once, with a job
// id for which it never fires an event.
func (s *Server) startWheel(ctx context.Context, in call) (any, error) {
	if err := hasFun(in.low, "wheel_async"); err != nil {
		return nil, err
	}
	v, err := s.callWheel(ctx, in)
	if err != nil {
		return nil, err
	}
	m, _ := v.(*value.Map)
	return value.NewMap("tag", m.Str("tag"), "jid", m.Map("data").Str("jid")), nil
}
