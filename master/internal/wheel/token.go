package wheel

import (
	"context"
	"time"

	"saltern/internal/control"
	"saltern/master/value"
)

// Tokens lists and ends log-ins.
type Tokens interface {
	LogIns() (control.Tokens, error)
	EndLogIns(r control.Revocation) (control.Revoked, error)
}

// tokenList is a function whose result only its caller may see.
const tokenList = "token.list"

// Private reports whether only the caller may see the result of a function. If so, neither the job
// cache nor the event at the end of the call contains the result.
func Private(fun string) bool { return fun == tokenList }

// tokenFunctions returns wheel functions that Salt does not have. Their arguments are named owner
// and system, because user and eauth in a command already describe the caller.
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
