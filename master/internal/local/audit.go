package local

import (
	"cmp"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"saltern/internal/audit"
	"saltern/internal/printable"
	"saltern/master/internal/eauth"
	"saltern/master/internal/launch"
	"saltern/master/internal/request"
	"saltern/master/keys"
	"saltern/master/redact"
	"saltern/master/value"
)

// AutosignRecord returns a function that writes an audit record for a key that an autosign rule
// accepted or rejected.
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

// BatchRecord returns a function that writes an audit record for a batch that the master continues
// for a tool. The job of the batch's first minions has its own record, which contains how the
// caller was authenticated.
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

// origin describes from where a command was sent.
type origin struct {
	login string
	addr  netip.Addr
	// from is addr as text. via is the program that forwarded the command.
	from, via string
}

// originOf returns the fields of a load that only describe its sender, and removes these fields
// from the load.
func (s *Service) originOf(c *request.Call) origin {
	addr, passed := s.cfg.Auth.Source(c.Load, c.From.Addr())
	o := origin{login: c.Load.Str(audit.LoginField), addr: addr, from: addr.Unmap().String()}
	if passed {
		o.via = "salt-api"
	}
	c.Load.Delete(audit.LoginField)
	return o
}

// actorOf returns the audit.Actor for an authenticated caller.
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

// unproven returns the audit.Actor for a caller who is not authenticated. user is the name that he
// gave, system the part of external_auth that he named; both may be "".
func (o origin) unproven(user, system string) audit.Actor {
	return audit.Actor{
		User:  cmp.Or(user, "UNKNOWN"),
		Proof: audit.Unproven,
		Eauth: system,
		From:  o.from,
		Via:   o.via,
	}
}

// loginRefused writes an audit record of a caller who failed to authenticate. action is the command
// that he sent. creds may be nil: they are not known. err is the reason of the refusal; it may be
// nil.
func (s *Service) loginRefused(o origin, load, creds *value.Map, action string, err error) {
	user := cmp.Or(creds.Str("username"), load.Str("username"), load.Str("user"))
	s.cfg.Audit.Note(audit.Record{
		Actor:    o.unproven(user, cmp.Or(creds.Str("eauth"), load.Str("eauth"))),
		Action:   "login",
		Function: action,
		Result:   audit.Refused,
		Detail:   unanswered(err),
		Stranger: true,
	})
}

// unanswered returns why nobody has checked a password. It returns "" if somebody has checked the
// password, or if there was no password.
func unanswered(err error) string {
	if cause, ok := errors.AsType[*eauth.Unanswered](err); ok {
		return printable.Brief(cause.Error(), maxShown)
	}
	return ""
}

// maxShown bounds the length of a value from outside, as text, in bytes.
const maxShown = 1000

// jobRecord returns the audit record of a job, without its result. It leaves out the arguments,
// because nothing shows which of them are secrets. Readers with access to the job cache find the
// arguments there by the job id.
func (o origin) jobRecord(caller eauth.Caller, load *value.Map, funs []string) audit.Record {
	return audit.Record{
		Time:     time.Now(), // a batch asks its minions first: its record is written seconds later
		Actor:    o.actorOf(caller),
		Action:   "job.publish",
		Object:   value.StrMax(load.Value("tgt"), maxShown),
		Function: audit.Names(funs),
	}
}

// published returns r, the record of a job or batch, with the result: started for so many minions, refused or
// failed. It has the time of the act.
func published(r audit.Record, jid string, minions int, err error) audit.Record {
	at := r.Time
	r = r.Ended(err)
	r.Time = at
	_, refused := errors.AsType[*launch.Refusal](err)
	switch {
	case err == nil:
		r.Result = audit.Started
		r.JID = jid
		r.Minions = minions
	case refused:
		r.Result = audit.Refused
	}
	return r
}

// followsJob reports whether tools call all the functions only to follow a job. The job itself has
// a record.
func followsJob(funs []string) bool {
	return !slices.ContainsFunc(funs, func(f string) bool { return f != "saltutil.find_job" })
}

// onlyLists reports whether a runner only lists data. The console calls such runners for each of
// its pages, so most records would be about such calls.
func onlyLists(fun string) bool {
	switch fun {
	case "presence.minions", "cluster.members",
		"jobs.active", "jobs.list_jobs", "jobs.list_jobs_filter", "jobs.list_job",
		"saved.targets", "saved.jobs", "saved.schedules", "saved.next", "saved.show", "saved.outcome",
		"git.status", "appliance.status", "appliance.course", "schedule.list", "files.list",
		"fleet.trend", "fleet.last", "fleet.jobs", "fleet.runs", "cache.grains",
		"fileserver.envs", "fileserver.file_list":
		return true
	}
	return false
}

// askedAbout returns what a runner is to show of: a minion, a key of pillars or a file, a branch or a folder. It
// returns "" for runners of whose arguments nothing is recorded.
func askedAbout(fun string, args []any, named *value.Map) string {
	var parameters []string
	switch fun {
	case "pillar.show_pillar", "fleet.explain":
		parameters = []string{"minion"}
	case "pillar.readers":
		parameters = []string{"key", "file"}
	case "pillar.diff", "top.diff":
		parameters = []string{"ref", "folder"}
	}
	if len(parameters) == 0 {
		return ""
	}

	var object any
	if len(args) > 0 {
		object = args[0] // the first parameter
	}
	for _, name := range parameters {
		if v, given := named.Get(name); given && object == nil {
			object = v
		}
	}
	if object == nil {
		return ""
	}
	return redact.Text(value.StrMax(object, maxShown))
}

// callRecord returns the audit record of a call of a runner or wheel function, without its result.
func (o origin) callRecord(caller eauth.Caller, form, fun string) audit.Record {
	return audit.Record{Actor: o.actorOf(caller), Action: form + ".call", Function: fun}
}

// quietWheel lists the wheel functions that only show keys and minions. Calls of them get no
// record.
var quietWheel = []string{"key.list", "key.list_all", "key.name_match", "key.glob_match", "key.print",
	"key.key_str", "key.finger", "key.finger_master",
	"key.master_key_str", "minions.connected"}

// keyActions maps the wheel functions that change keys to their actions in the audit record.
var keyActions = map[string]string{
	"key.accept":      "key.accept",
	"key.accept_dict": "key.accept",
	"key.gen_accept":  "key.accept",
	"key.reject":      "key.reject",
	"key.reject_dict": "key.reject",
	"key.delete":      "key.delete",
	"key.delete_dict": "key.delete",
}

// wheelRecord returns the audit record of a call of a wheel function, without its result. ok is
// false if the call needs no record.
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
		return r, true // the meaning of the arguments is unknown
	}

	var object any
	for _, name := range []string{"match", "id_", "file_name", "path", "node", "owner", "name"} {
		if v, given := named.Get(name); given {
			object = v
		}
	}

	// The first argument of other modules may be content.
	if object == nil && len(args) > 0 && module == "key" {
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
