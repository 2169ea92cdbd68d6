package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/event"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/internal/username"
	"saltern/master/jobs"
	"saltern/master/target"
	"saltern/master/value"
)

// authorization returns Salt's answer to a caller who lacks a permission.
func authorization() *value.Map {
	return (&eauth.Failure{Name: "AuthorizationError", Message: "Authorization error occurred."}).Map()
}

// invocation returns Salt's answer to a malformed command.
func invocation(message string) *value.Map {
	return (&eauth.Failure{Name: "SaltInvocationError", Message: message}).Map()
}

// blacklisted reports whether publisher_acl_blacklist names an authenticated user. (Salt checks
// only the account of the tool's process.) For a user of LDAP it also looks up the folded name,
// because a directory that hides the user's entry leaves the name as the user typed it.
func (s *Service) blacklisted(caller eauth.Caller) bool {
	return s.cfg.Blacklist.Refuses(caller.Name, nil) ||
		caller.Eauth == "ldap" && s.cfg.Blacklist.Refuses(username.Fold(caller.Name), nil)
}

// limitedCaller returns a caller without all rights, in the form that package launch expects.
func limitedCaller(caller eauth.Caller, load *value.Map) launch.Caller {
	c := launch.Caller{
		User:        caller.Name,
		Account:     cmp.Or(caller.Eauth, "host") + "/" + caller.Name,
		Permissions: caller.Permissions,
		Always:      []string{"saltutil.find_job"},
	}
	if caller.Kind == "user" {
		c.User = load.Str("user") // the caller is sudo_NAME, who has the rights of NAME
	}
	return c
}

// onPublish starts a job for a tool (salt/master.py ClearFuncs.publish).
func (s *Service) onPublish(ctx context.Context, c *request.Call) (any, error) {
	load, o := c.Load, s.originOf(c)
	funs, ok := launch.Functions(load)
	if !ok {
		return invocation("fun must be a function or a list of functions"), nil
	}
	caller, refusal := s.admitPublisher(ctx, o, load, funs)
	if refusal != nil {
		return refusal, nil
	}

	record := o.jobRecord(caller, load, funs)
	j, answer := s.prepare(ctx, caller, load, record)
	if answer != nil {
		return answer, nil
	}

	j.Eauth = caller.Eauth
	s.awaitReaders(ctx)
	err := s.cfg.Launch.Start(ctx, j)
	if !followsJob(funs) {
		s.cfg.Audit.Note(published(record, j.JID, len(j.Minions), err))
	}

	if refusal, refused := errors.AsType[*launch.Refusal](err); refused {
		return invocation(refusal.Text), nil
	}
	if err != nil {
		return nil, err
	}

	return value.NewMap("enc", "clear", "load",
		value.NewMap("jid", j.JID, "minions", j.Minions, "missing", j.Missing)), nil
}

// admitPublisher authenticates the caller who wants to start a job. refusal is nil if he is proven.
func (s *Service) admitPublisher(
	ctx context.Context,
	o origin,
	load *value.Map,
	funs []string,
) (caller eauth.Caller, refusal *value.Map) {
	if s.cfg.Blacklist.Refuses(load.Str("user"), funs) {
		s.cfg.Quiet.Error("function or user is on publisher_acl_blacklist", "user", load.Str("user"), "fun", funs)
		s.loginRefused(o, load, load.Map("kwargs"), "publish "+audit.Names(funs), nil)
		return caller, authorization()
	}

	caller, err := s.cfg.Auth.Check(ctx, load, load.Map("kwargs"), o.addr)
	if f, ok := errors.AsType[*eauth.Failure](err); ok && f.Busy {
		return caller, f.Map()
	}
	if err != nil {
		s.loginRefused(o, load, load.Map("kwargs"), "publish "+audit.Names(funs), err)
		// Python's master fires an event with the load here. This master does not, because then
		// anyone who can reach the port could write to the event bus.
		return caller, (&eauth.Failure{Name: "AuthenticationError", Message: "Authentication error occurred."}).Map()
	}
	return caller, nil
}

// prepare returns the job that an authenticated caller asks for, if he may start it and its target
// selects minions. Otherwise prepare returns the answer for the caller, and records a refusal.
func (s *Service) prepare(
	ctx context.Context,
	caller eauth.Caller,
	load *value.Map,
	record audit.Record,
) (j *launch.Job, answer *value.Map) {
	var by launch.Caller
	var err error
	if !caller.All {
		by = limitedCaller(caller, load)
		err = s.cfg.Launch.MayTarget(by, load)
		if s.blacklisted(caller) {
			s.cfg.Quiet.Error("user is on publisher_acl_blacklist", "user", caller.Name, "kind", caller.Kind)
			err = launch.ErrNotPermitted
		}

		if err != nil {
			return nil, s.refused(ctx, caller, load, record, err)
		}
	}

	if j, err = s.findMinions(ctx, load); err != nil {
		// As in Salt, a target that cannot be parsed selects no minions.
		s.cfg.Quiet.Error("target cannot be read", "user", load.Str("user"), "error", err)
		if name, ok := target.MissingGroup(err); ok { // Salt's tools find that out by themselves
			return nil, invocation("Node group " + name + " unavailable: neither the option nodegroups nor a saved target has that name")
		}
		return nil, nobody(load.Value("tgt"))
	}

	if !caller.All {
		if err := s.cfg.Launch.Permit(nil, j, by); err != nil {
			return nil, s.refused(ctx, caller, load, record, err)
		}
	}

	if s.cfg.Launch.ReachesNobody(j) {
		return nil, nobody(j.Target)
	}

	return j, nil
}

// findMinions resolves the target of a load to a Job.
func (s *Service) findMinions(ctx context.Context, load *value.Map) (*launch.Job, error) {
	j, err := s.cfg.Launch.New(ctx, load)
	if err != nil || len(j.Minions) > 0 && len(j.Missing) == 0 {
		return j, err
	}
	// Another process may have accepted a key a moment ago.
	if err := s.cfg.ReloadKeys(); err != nil {
		s.cfg.Log.Warn("reading minion keys", "error", err)
	}
	return s.cfg.Launch.New(ctx, load)
}

// refused records that a caller may not start a job, and returns the answer for the caller.
func (s *Service) refused(
	ctx context.Context,
	caller eauth.Caller,
	load *value.Map,
	record audit.Record,
	err error,
) *value.Map {
	refusal, spoken := errors.AsType[*launch.Refusal](err)
	if !spoken && !errors.Is(err, launch.ErrNotPermitted) {
		s.cfg.Log.Error("job refused", "user", caller.Name, "error", err)
		return nobody(load.Value("tgt"))
	}

	s.cfg.Quiet.Warn("caller may not publish this", "user", caller.Name, "kind", caller.Kind, "fun",
		load.Value("fun"), "error", err)
	record.Result = audit.Refused
	if spoken {
		record.Detail = printable.Brief(refusal.Text, maxShown)
	}
	s.cfg.Audit.Note(record)

	if spoken {
		return invocation(refusal.Text)
	}

	s.fireJobError(ctx, load, "AuthorizationError", "Authorization error occurred.")
	return authorization()
}

// nobody returns the answer for a target that selects no minions.
func nobody(tgt any) *value.Map {
	return value.NewMap("enc", "clear", "load", value.NewMap("jid", nil, "minions", []any{},
		"error", fmt.Sprintf("Master could not resolve minions for target %s", value.Str(tgt))))
}

// fireJobError fires an event which reports that a job with an id that the tool chose will not
// start. If another job may have that id, fireJobError fires nothing: the tools that wait for the
// other job would take this event, and the minions in it, for an event of their own job
// (salt/client/__init__.py get_iter_returns).
func (s *Service) fireJobError(ctx context.Context, load *value.Map, name, message string) {
	jid := load.Str("jid")
	if !jobs.Valid(jid) || !s.cfg.Launch.IsFreeJID(ctx, jid) {
		return
	}
	ev := value.NewMap()
	for _, k := range []string{"jid", "fun", "arg", "tgt", "tgt_type", "ret", "user"} {
		if v, ok := load.Get(k); ok {
			ev.Set(k, v)
		}
	}
	ev.Set("error", value.NewMap("name", name, "message", message))
	s.cfg.Fire(event.Tag("job", jid, "error"), ev)
}
