package restapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"saltern/master/client"
	"saltern/master/value"
)

// maxRunner bounds what a caller may ask to wait for a runner.
const maxRunner = 24 * time.Hour

// runnerCall reads a call of a runner (salt/runner.py _reformat_low): arguments are
// in arg, in kwarg, and at the top.
func runnerCall(low *value.Map, own ...string) (fun string, arguments *value.Map) {
	rest := low.Clone()
	fun, _ = rest.Value("fun").(string)
	for _, k := range append(own, "fun", "arg", "kwarg", "username", "password", "eauth", "token", "client", "user", "key") {
		rest.Delete(k)
	}
	args, named := []any{}, value.NewMap()
	for _, a := range low.List("arg") {
		switch a := a.(type) {
		case string:
			if k, v, ok := client.ParseKwarg(a); ok {
				named.Set(k, client.Yamlify(v))
				continue
			}
			args = append(args, client.Yamlify(a))
		case *value.Map:
			if a.Value("__kwarg__") == true {
				named.Update(a)
				named.Delete("__kwarg__")
				continue
			}
			args = append(args, a)
		default:
			args = append(args, a)
		}
	}
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

// runner runs a function of the master and waits for it.
func (s *Server) runner(ctx context.Context, low *value.Map) (any, error) {
	if err := hasFun(low, "runner"); err != nil {
		return nil, err
	}
	limit := time.Duration(s.opts.Timeout) * time.Second
	if v, ok := low.Get("timeout"); ok && v != nil {
		n, err := strconv.ParseFloat(value.Str(v), 64)
		if err != nil {
			return nil, errors.New("timeout is no number")
		}
		limit = min(time.Duration(max(n, 0)*float64(time.Second)), maxRunner)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	fun, arguments := runnerCall(low, "timeout", "full_return")
	c := s.client()
	defer c.Close()
	data, err := c.Runner(ctx, fun, []any{}, arguments, credentials(low), func(string, *value.Map) {})
	if err != nil {
		return nil, err
	}
	if value.Truth(low.Value("full_return")) {
		return value.NewMap("data", data, "tag", "salt/run/"+data.Str("jid")+"/ret"), nil
	}
	return data.Value("return"), nil
}

// runnerAsync starts a function of the master.
func (s *Server) runnerAsync(ctx context.Context, low *value.Map) (any, error) {
	if err := hasFun(low, "runner_async"); err != nil {
		return nil, err
	}
	fun, arguments := runnerCall(low)
	c := s.client()
	defer c.Close()
	jid, err := c.StartRunner(ctx, fun, []any{}, arguments, credentials(low))
	if err != nil {
		return nil, err
	}
	return value.NewMap("tag", "salt/run/"+jid, "jid", jid), nil
}

// wheel calls a function that changes the master.
func (s *Server) wheel(ctx context.Context, low *value.Map) (any, error) {
	if err := hasFun(low, "wheel"); err != nil {
		return nil, err
	}
	load := value.NewMap()
	for k, v := range low.All() {
		if name, ok := k.(string); ok && (!strings.HasPrefix(name, "__") || name == "__kwarg__") {
			load.Set(name, v)
		}
	}
	load.Set("cmd", "wheel")
	load.Delete("key") // of a system user; only those of the master's host have one
	c := s.client()
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

// wheelAsync is wheel, and tells only where its end was told. These functions are
// quick; Salt's answers at once, with a job id under which nothing ever happens.
func (s *Server) wheelAsync(ctx context.Context, low *value.Map) (any, error) {
	if err := hasFun(low, "wheel_async"); err != nil {
		return nil, err
	}
	v, err := s.wheel(ctx, low)
	if err != nil {
		return nil, err
	}
	m, _ := v.(*value.Map)
	return value.NewMap("tag", m.Str("tag"), "jid", m.Map("data").Str("jid")), nil
}
