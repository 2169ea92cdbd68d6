package wheel

import (
	"context"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// Tokens are the log-ins that the master has given out.
type Tokens interface {
	LogIns() (control.Tokens, error)
	EndLogIns(r control.Revocation) (control.Revoked, error)
}

// tokenList is the function whose return only its caller gets.
const tokenList = "token.list"

// Private tells of functions whose return is for the caller alone: it is neither kept in
// the job cache nor in the event of their end.
func Private(fun string) bool { return fun == tokenList }

// tokenFunctions are ours; Salt has none of these. user and eauth would be the
// caller's own, so that those of others are owner and system.
func tokenFunctions() map[string]function {
	return map[string]function{
		tokenList: {do: func(_ context.Context, e *Env, _ args) (any, error) {
			t, err := e.Tokens.LogIns()
			if err != nil {
				return nil, err
			}

			list := make([]any, 0, len(t.Tokens))
			for _, k := range t.Tokens {
				list = append(list,
					value.NewMap("name", k.Name, "user", k.User, "eauth", k.Eauth, "from", k.From, "node", k.Node,
						"start", k.Start.Format(time.RFC3339), "until", k.Until.Format(time.RFC3339)))
			}

			return value.NewMap("tokens", list, "more", int64(t.More)), nil
		}},
		"token.revoke": {
			params: []string{"name", "owner", "system"},
			do: func(_ context.Context, e *Env, a args) (any, error) {
				done, err := e.Tokens.EndLogIns(control.Revocation{
					Name:  a.textOf("name", ""),
					User:  a.textOf("owner", ""),
					Eauth: a.textOf("system", ""),
				})
				if err != nil {
					return nil, err
				}

				return int64(done.Count), nil
			},
		},
	}
}
