package local

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/redact"
	"saltern/master/value"
)

// AutosignRecord gives what notes the keys that a rule has accepted or rejected.
func AutosignRecord(log *audit.Log) func(id, rule string, st keys.State, from netip.Addr) {
	return func(id, rule string, st keys.State, from netip.Addr) {
		r := audit.Record{
			Actor:    audit.Actor{User: string(audit.Autosign), Proof: audit.Autosign, From: from.Unmap().String()},
			Action:   "key.autosign",
			Object:   id,
			Result:   audit.OK,
			Detail:   rule,
			Stranger: true,
		}

		if st != keys.Accepted {
			r.Result = audit.Refused
		}

		log.Note(r)
	}
}

// BatchRecord gives what notes the batches that the master goes on with for a tool: the
// first minions have a record of their own, with how it was proven.
func BatchRecord(log *audit.Log) func(jid string, kept *value.Map) {
	return func(jid string, kept *value.Map) {
		var funs []string
		if fun := kept.Str("fun"); fun != "" {
			funs = []string{fun}
		} else {
			funs = kept.Texts("fun")
		}

		waiting := len(kept.List("pending"))
		actor := audit.Actor{User: kept.Str("user"), Proof: audit.Key, From: audit.Local}
		if sudo, ok := strings.CutPrefix(actor.User, "sudo_"); ok {
			actor.User, actor.As = sudo, "root"
		}

		log.Note(audit.Record{
			Actor:    actor,
			Action:   "job.publish",
			Object:   value.StrMax(kept.Value("tgt"), maxShown),
			Function: audit.Names(funs),
			JID:      jid,
			Minions:  waiting,
			Result:   audit.Started,
			Detail:   "the rest of a batch",
		})
	}
}

// origin is what a load says of its caller besides who he is, and from where it came.
type origin struct {
	login     string
	addr      netip.Addr
	from, via string // addr as text; what passed the command on
}

// originOf takes the fields out of a load that only say more about the caller.
func (s *Service) originOf(c *request.Call) origin {
	addr, passed := s.cfg.Auth.Source(c.Load, c.From.Addr())
	o := origin{login: c.Load.Str(audit.LoginField), addr: addr, from: addr.Unmap().String()}
	if passed {
		o.via = "salt-api"
	}
	c.Load.Delete(audit.LoginField)
	return o
}

// actorOf is a proven caller.
func (o origin) actorOf(caller eauth.Caller) audit.Actor {
	a := audit.Actor{
		User:    caller.Name,
		Eauth:   caller.Eauth,
		From:    o.from,
		Via:     o.via,
		Limited: !caller.All,
	}

	switch caller.Kind {
	case "token":
		a.Proof = audit.Token
	case "eauth":
		a.Proof = audit.Password
	default:
		a.Proof = audit.Key
		if sudo, ok := strings.CutPrefix(a.User, "sudo_"); ok {
			a.User, a.As = sudo, "root"
		}
		if caller.All && o.login != "" && o.login != a.User {
			a.User, a.As = o.login, cmp.Or(a.As, a.User)
		}
	}

	return a
}

// stranger is a caller who has not proven who he is.
func (o origin) stranger(user, system string) audit.Actor {
	return audit.Actor{
		User:  cmp.Or(user, "UNKNOWN"),
		Proof: audit.Unproven,
		Eauth: system,
		From:  o.from,
		Via:   o.via,
	}
}

// loginRefused notes that somebody has not proven who he is; what is what he asked for.
// creds may be nil, and so may err, the refusal.
func (s *Service) loginRefused(o origin, load, creds *value.Map, what string, err error) {
	user := cmp.Or(creds.Str("username"), load.Str("username"), load.Str("user"))
	s.cfg.Audit.Note(audit.Record{
		Actor:    o.stranger(user, cmp.Or(creds.Str("eauth"), load.Str("eauth"))),
		Action:   "login",
		Function: what,
		Result:   audit.Refused,
		Detail:   unanswered(err),
		Stranger: true,
	})
}

// unanswered says of a refusal that nobody has looked at the password, and why; "": somebody
// has, or it was no password.
func unanswered(err error) string {
	if cause, ok := errors.AsType[*eauth.Unanswered](err); ok {
		return printable.Brief(cause.Error(), maxShown)
	}
	return ""
}

// maxShown bounds the work that the text of a foreign value makes, in bytes.
const maxShown = 1000

// jobRecord is the record of a job without its result. Arguments are left out: no rule
// tells which of them are secrets. Who may read the job cache finds them by the job
// id for as long as that keeps them.
func (o origin) jobRecord(caller eauth.Caller, load *value.Map, funs []string) audit.Record {
	return audit.Record{
		Actor:    o.actorOf(caller),
		Action:   "job.publish",
		Object:   value.StrMax(load.Value("tgt"), maxShown),
		Function: audit.Names(funs),
	}
}

// published is the record of a job that was started, or could not be.
func published(r audit.Record, j *launch.Job, err error) audit.Record {
	r = r.Ended(err)
	_, refused := errors.AsType[*launch.Refusal](err)
	switch {
	case err == nil:
		r.Result = audit.Started
		r.JID = j.JID
		r.Minions = len(j.Minions)
	case refused:
		r.Result = audit.Refused
	}
	return r
}

// followsJob reports whether functions are those by which tools follow a job that is
// recorded itself.
func followsJob(funs []string) bool {
	return !slices.ContainsFunc(funs, func(f string) bool { return f != "saltutil.find_job" })
}

// onlyLists reports whether a runner only shows lists. The console calls some for each of
// its pages, which would bury what somebody did.
func onlyLists(fun string) bool {
	switch fun {
	case "presence.minions", "cluster.members", "jobs.active", "jobs.list_jobs", "jobs.list_jobs_filter", "jobs.list_job", "git.status", "appliance.status", "appliance.course", "fileserver.envs", "fileserver.file_list":
		return true
	}
	return false
}

// callRecord is the record of a call of a runner or wheel function without its result.
func (o origin) callRecord(caller eauth.Caller, form, fun string) audit.Record {
	return audit.Record{Actor: o.actorOf(caller), Action: form + ".call", Function: fun}
}

// quietWheel are the wheel functions that only show which keys and minions there are.
var quietWheel = []string{"key.list", "key.list_all", "key.name_match", "key.glob_match", "key.print",
	"key.key_str", "key.finger", "key.finger_master",
	"key.master_key_str", "minions.connected"}

// keyActions are the wheel functions that change keys.
var keyActions = map[string]string{
	"key.accept":      "key.accept",
	"key.accept_dict": "key.accept",
	"key.gen_accept":  "key.accept",
	"key.reject":      "key.reject",
	"key.reject_dict": "key.reject",
	"key.delete":      "key.delete",
	"key.delete_dict": "key.delete",
}

// wheelRecord is the record of a call of a wheel function without its result; ok is
// false for one that is not worth it.
func (s *Service) wheelRecord(
	o origin,
	caller eauth.Caller,
	fun string,
	args []any,
	named *value.Map,
) (r audit.Record, ok bool) {
	if slices.Contains(quietWheel, fun) {
		return r, false
	}

	r = o.callRecord(caller, "wheel", fun)
	r.Op = audit.NewOp()
	module, _, _ := strings.Cut(fun, ".")
	if !slices.Contains([]string{"key", "config", "file_roots", "pillar_roots", "appliance", "token"}, module) {
		return r, true // what its arguments are is not known
	}

	var object any
	for _, name := range []string{"match", "id_", "file_name", "path", "node", "owner", "name"} {
		if v, given := named.Get(name); given {
			object = v
		}
	}

	if object == nil && len(args) > 0 && module == "key" { // of the others the first may be content
		object = args[0]
	}

	r.Object = redact.Text(value.StrMax(object, maxShown))
	if object == nil {
		r.Object = ""
	}

	if fun == "token.revoke" {
		r.Action = fun
	}

	if action := keyActions[fun]; action != "" {
		r.Action = action
		if found, err := s.cfg.Wheel.Env.Keys.Match(object, false); err == nil {
			var ids []string
			for _, list := range found.All() {
				for _, id := range list.([]any) {
					ids = append(ids, id.(string))
				}
			}
			r.Detail = audit.Names(ids)
		}
	}

	return r, true
}
