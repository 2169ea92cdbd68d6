package local

import (
	"context"
	"fmt"
	"time"

	"saltern/internal/audit"
	"saltern/master/internal/eauth"
	"saltern/master/internal/source"
	"saltern/master/runner"
	"saltern/master/value"
)

// AddTokenRunners adds the runners auth.mk_token and auth.del_token (salt/runners/auth.py). They
// run in the master itself, because the arguments of a runner in Python would be stored in the job
// cache. A caller who may call these runners may log in any user whose password he has; the limits
// of log-ins apply.
func AddTokenRunners(table *runner.Table, callers Callers, log *audit.Log, now func() time.Time) {
	t := tokenRunners{callers, log, now}
	table.Add(tokenMaker, t.makeToken)
	table.Add("auth.del_token", t.removeToken)
}

// tokenMaker is the name of the runner that logs a user in.
const tokenMaker = "auth.mk_token"

type tokenRunners struct {
	callers Callers
	audit   *audit.Log
	now     func() time.Time
}

func (t tokenRunners) makeToken(ctx context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
	if len(args) > 0 {
		return nil, &runner.ArgumentError{
			Reason: fmt.Sprintf("mk_token() takes 0 positional arguments but %d were given", len(args)),
			Usage:  "salt-run auth.mk_token username=NAME password=PASSWORD eauth=SYSTEM [token_expire=SECONDS]",
		}
	}

	from := source.Of(ctx)
	made, err := t.callers.Auth.MakeToken(ctx, named, from)
	why := unanswered(err)
	if err != nil && why == "" {
		return nil, err
	}

	record := audit.Record{
		Actor: audit.Actor{
			User:  named.Str("username"),
			Proof: audit.Password,
			Eauth: named.Str("eauth"),
			From:  audit.Local,
		},
		Action: "login",
		Result: audit.OK,
	}

	if from.IsValid() {
		record.From = from.Unmap().String()
	}

	token, ok := made.(*value.Map)
	if !ok {
		record.Proof = audit.Unproven
		record.Result = audit.Refused
		record.Detail = why
		t.audit.Note(record)
		return made, nil
	}

	record.User = token.Str("name") // the name in the external system's spelling
	t.audit.Note(record)
	token.Delete(eauth.RightsField) // only salt-api needs this field
	return token, nil
}

// removeToken removes a token, and reports whether it existed.
func (t tokenRunners) removeToken(_ context.Context, _ *runner.Env, args []any, named *value.Map) (any, error) {
	given, ok := named.Get("token")
	if len(args) == 1 && !ok {
		given, ok = args[0], true
		args = nil
	}

	token, isText := given.(string)
	if len(args) > 0 || !ok || !isText {
		return nil, &runner.ArgumentError{Reason: "del_token() takes one token", Usage: "salt-run auth.del_token TOKEN"}
	}

	was, err := t.callers.Tokens.Get(token, t.now())
	if err != nil {
		return false, nil
	}

	err = t.callers.Tokens.Remove(token)
	record := audit.Record{
		Actor:  audit.Actor{User: was.Name, Proof: audit.Token, Eauth: was.Eauth, From: audit.Local},
		Action: "token.delete",
		Object: was.Name,
	}

	t.audit.Note(record.Ended(err))
	if err != nil {
		return nil, err
	}

	return true, nil
}
