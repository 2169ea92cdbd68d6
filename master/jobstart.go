package master

import (
	"context"
	"fmt"
	"strings"

	"saltern/master/acl"
	"saltern/master/eauth"
	"saltern/master/event"
	"saltern/master/jobs"
	"saltern/master/msgpack"
	"saltern/master/request"
	"saltern/master/target"
)

// authorization is Salt's answer to a caller who may not do what he asks.
func authorization() *msgpack.Map {
	return (&eauth.Failure{Name: "AuthorizationError", Message: "Authorization error occurred."}).Map()
}

// onPublish starts a job for a local client (salt/master.py ClearFuncs.publish).
func (m *Master) onPublish(ctx context.Context, c *request.Call) (any, error) {
	load := c.Load
	funs, ok := functions(load)
	if !ok {
		return msgpack.NewMap("error", msgpack.NewMap("name", "SaltInvocationError", "message", "fun must be a function or a list of functions")), nil
	}
	if m.blacklist.Refuses(load.Str("user"), funs) {
		m.quiet.Error("function or user is on publisher_acl_blacklist", "user", load.Str("user"), "fun", funs)
		return authorization(), nil
	}
	caller, err := m.auth.Check(ctx, load, load.Map("kwargs"))
	if err != nil {
		// Python's master fires an event with the whole load here. That would
		// let anyone who reaches the port write on the bus.
		return (&eauth.Failure{Name: "AuthenticationError", Message: "Authentication error occurred."}).Map(), nil
	}
	j, err := m.newJob(ctx, load)
	if err == nil && (len(j.minions) == 0 || len(j.missing) > 0) {
		// Perhaps a key was accepted a moment ago.
		if lerr := m.keys.Look(); lerr != nil {
			m.log.Warn("reading minion keys", "error", lerr)
		}
		j, err = m.newJob(ctx, load)
	}
	if err != nil {
		// As with Salt, a target that cannot be read selects nobody.
		m.quiet.Error("target cannot be read", "user", load.Str("user"), "error", err)
		return nobody(get(load, "tgt")), nil
	}
	if !caller.All {
		r := acl.Request{Funs: funs, Args: arguments(load, len(funs)), Minions: j.minions}
		if !acl.Publish(caller.Permissions, r, m.compoundWithin(nil), "saltutil.find_job") {
			m.quiet.Warn("caller may not publish this", "user", caller.Name, "kind", caller.Kind, "fun", funs)
			m.fireJobError(load, "AuthorizationError", "Authorization error occurred.")
			return authorization(), nil
		}
		if err := m.restrict(j, caller.Permissions, r, "saltutil.find_job"); err != nil {
			m.log.Error("job refused", "user", caller.Name, "error", err)
			return nobody(j.tgt), nil
		}
		if caller.Kind != "user" {
			load.Set("user", caller.Name)
		}
	}
	if len(j.minions) == 0 && (j.only || !m.cfg.OrderMasters) {
		return nobody(j.tgt), nil
	}
	m.heard(ctx)
	if err := m.start(ctx, j); err != nil {
		return nil, err
	}
	return msgpack.NewMap("enc", "clear", "load", msgpack.NewMap("jid", j.jid, "minions", j.minions, "missing", j.missing)), nil
}

// nobody is the answer when a target selects no minion.
func nobody(tgt any) *msgpack.Map {
	return msgpack.NewMap("enc", "clear", "load", msgpack.NewMap("jid", nil, "minions", []any{},
		"error", fmt.Sprintf("Master could not resolve minions for target %s", shown(tgt))))
}

// job is a job on its way out.
type job struct {
	load             *msgpack.Map // as the client sent it, without secrets
	tgt              any
	jid              string
	minions, missing []string
	only             bool // goes to minions, and to nobody else
}

// restrict has the job of a caller without all rights go to exactly the
// minions for which it was permitted: other readers of its target may find
// others. A job that is permitted on all minions keeps the target * as it is, since
// a list of thousands of names would go to each of them; and any target with
// order_masters, since lower masters have minions that are not known here.
func (m *Master) restrict(j *job, perms []any, r acl.Request, always ...string) error {
	r.Minions = nil
	nowhere := func(string) ([]string, error) { return nil, nil }
	everybody := j.tgt == "*" && targetType(j.load) == "glob"
	if (m.cfg.OrderMasters || everybody) && acl.Publish(perms, r, nowhere, always...) {
		return nil
	}
	return j.restrict()
}

// newJob finds out whom a load is for.
func (m *Master) newJob(ctx context.Context, load *msgpack.Map) (*job, error) {
	work, stop := whileAsked(ctx)
	defer stop()
	return m.newJobWithin(target.NewEffort(work), load)
}

// newJobWithin is newJob with a bound on the work.
func (m *Master) newJobWithin(e *target.Effort, load *msgpack.Map) (*job, error) {
	tgt, _ := load.Get("tgt")
	minions, missing, err := m.resolveWithin(e, tgt, targetType(load), delimiter(load))
	if err != nil {
		return nil, fmt.Errorf("resolving the target %.100q: %w", fmt.Sprint(tgt), err)
	}
	return &job{load: load, tgt: tgt, minions: minions, missing: missing}, nil
}

// start assigns the job its id, makes it known, keeps it and publishes it. It
// returns when the job is durable; the minions have it by then.
func (m *Master) start(ctx context.Context, j *job) error {
	nocache := j.load.Map("kwargs").Bool("nocache")
	asked := j.load.Str("jid")
	if asked != "" && !jobs.Valid(asked) {
		return fmt.Errorf("starting a job: %w: %.40q", jobs.ErrJID, asked)
	}
	var err error
	if asked != "" && !nocache {
		j.jid = asked // Stage declares it
	} else if j.jid, err = m.jobs.Prep(ctx, asked, nocache); err != nil {
		m.problems.set("job cache", err)
		return fmt.Errorf("starting a job: %w", err)
	}
	load := j.load
	load.Set("jid", j.jid)
	load.Delete("cmd")
	load.Delete(onlyField)
	if j.only && asked != "" {
		m.mayReturn(ctx, asked, "") // a job of that id may be open to all already
	}
	m.expected.put(j.jid, j.only, j.minions)
	started := msgpack.NewMap("jid", j.jid, "tgt_type", targetType(load), "tgt", j.tgt,
		"user", load.Str("user"), "fun", get(load, "fun"), "arg", get(load, "arg"), "minions", j.minions, "missing", j.missing)
	kept := load.Clone()
	if j.only {
		started.Set(onlyField, true)
		kept.Set(onlyField, true)
	}
	m.fire(event.Tag("job", j.jid, "new"), started)
	wait, err := m.jobs.Stage(ctx, j.jid, kept, j.minions)
	if err != nil {
		m.problems.set("job cache", err)
		return fmt.Errorf("keeping job %s: %w", j.jid, err)
	}
	pub := m.publication(load)
	j.aim(pub)
	m.fire(event.Tag("job", j.jid, "publish"), pub)
	m.count.jobs.Add(1)
	m.log.Info("job published", "jid", j.jid, "user", load.Str("user"), "fun", get(load, "fun"), "minions", len(j.minions))
	if err := m.publisher.Publish(ctx, pub, j.minions); err != nil {
		return fmt.Errorf("publishing job %s: %w", j.jid, err)
	}
	if err := wait(ctx); err != nil {
		m.problems.set("job cache", err)
		return fmt.Errorf("keeping job %s: %w", j.jid, err)
	}
	m.problems.clear("job cache")
	return nil
}

// publication is the load that minions get, in Salt's order (salt/master.py
// _prep_pub).
func (m *Master) publication(load *msgpack.Map) *msgpack.Map {
	kwargs := load.Map("kwargs")
	pub := msgpack.NewMap("fun", get(load, "fun"), "arg", get(load, "arg"), "tgt", get(load, "tgt"), "jid", get(load, "jid"), "ret", get(load, "ret"))
	if id, ok := m.cfg.Raw.Get("master_id"); ok && id != nil {
		pub.Set("master_id", id)
	}
	if id, ok := kwargs.Get("master_id"); ok {
		pub.Set("master_id", id)
	}
	if d := delimiter(load); d != ":" {
		pub.Set("delimiter", d)
	}
	if id, ok := kwargs.Get("id"); ok {
		pub.Set("id", id)
	}
	if t, ok := load.Get("tgt_type"); ok {
		pub.Set("tgt_type", t)
	}
	if to, ok := load.Get("to"); ok {
		pub.Set("to", to)
	}
	for _, k := range []string{"ret_config", "metadata", "module_executors", "executor_opts", "ret_kwargs"} {
		if v, ok := kwargs.Get(k); ok {
			pub.Set(k, v)
		}
	}
	if kwargs.Bool("start_event") {
		pub.Set("start_event", true)
	}
	if u, ok := load.Get("user"); ok {
		pub.Set("user", u)
	}
	return pub
}

func (m *Master) fireJobError(load *msgpack.Map, name, message string) {
	if jid := load.Str("jid"); jobs.Valid(jid) {
		ev := load.Clone()
		ev.Set("error", msgpack.NewMap("name", name, "message", message))
		m.fire(event.Tag("job", jid, "error"), ev)
	}
}

func get(m *msgpack.Map, key string) any { v, _ := m.Get(key); return v }

func targetType(load *msgpack.Map) string {
	if t := load.Str("tgt_type"); t != "" {
		return t
	}
	return "glob"
}

func delimiter(load *msgpack.Map) string {
	if d := load.Map("kwargs").Str("delimiter"); d != "" {
		return d
	}
	return ":"
}

// maxFunctions bounds a compound job.
const maxFunctions = 1000

// functions reads fun: one function, or the list of a compound job.
func functions(load *msgpack.Map) ([]string, bool) {
	switch f := get(load, "fun").(type) {
	case string:
		return []string{f}, true
	case []any:
		if len(f) > maxFunctions {
			return nil, false
		}
		var out []string
		for _, v := range f {
			s, ok := v.(string)
			if !ok {
				return nil, false
			}
			out = append(out, s)
		}
		return out, len(out) > 0
	}
	return nil, false
}

// arguments returns one list of arguments per function.
func arguments(load *msgpack.Map, n int) []any {
	arg := load.List("arg")
	if _, one := get(load, "fun").(string); one {
		return []any{arg}
	}
	if len(arg) > n {
		arg = arg[:n]
	}
	return arg
}

// shown writes a target as Python would.
func shown(tgt any) string {
	if l, ok := tgt.([]any); ok {
		var s strings.Builder
		s.WriteByte('[')
		for i, v := range l {
			if i > 0 {
				s.WriteString(", ")
			}
			fmt.Fprintf(&s, "'%v'", v)
		}
		s.WriteByte(']')
		return s.String()
	}
	return fmt.Sprint(tgt)
}
