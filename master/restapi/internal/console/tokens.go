package console

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"saltern/internal/control"
	"saltern/master/value"
)

// tokensPage is the data of the pages that list the log-ins, and that ask which to end.
type tokensPage struct {
	control.Tokens
	Own         string // name of the token of this session
	Revoke      bool   // the user may end log-ins of others
	Name, User  string // token or user to log out; one of the two is ""
	Eauth       string
	All, Itself bool // All: end every log-in of User. Itself: this session is among the log-ins to end
}

// revokeTokens is the wheel function that ends log-ins.
const revokeTokens = "token.revoke"

// logIns asks the master for the present log-ins and returns them.
func logIns(ctx context.Context, v *visit) (d tokensPage, err error) {
	got, err := v.runCommand(ctx, "wheel", "token.list")
	if err != nil {
		return d, err
	}
	m, ok := wheelReturn(got).(*value.Map)
	text, _ := value.JSON{Indent: -1}.Text(m)
	if !ok || json.Unmarshal([]byte(text), &d.Tokens) != nil {
		return d, &Refusal{http.StatusBadGateway,
			"The master does not say who is logged in: " + briefName(value.StrMax(wheelReturn(got), maxName))}
	}
	d.Tokens = d.Tokens.Clean()
	d.Own, d.Revoke = control.TokenName(v.login.Token), v.mayCall("wheel", revokeTokens)
	return d, nil
}

func showTokens(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, err := logIns(ctx, v)
	if err != nil {
		return Answer{}, err
	}
	p := page{Title: "Log-ins", Data: d}
	if n, err := strconv.Atoi(v.query.Get("done")); err == nil && n > 0 {
		p.Notice = countWord(n, "log-in was", "log-ins were") + " ended. The other nodes know it a second later."
	}
	return c.render(v, "tokens", http.StatusOK, p)
}

// tokenChoice reads from a form which log-ins to end. It refuses log-ins that do not exist.
func tokenChoice(ctx context.Context, v *visit, q url.Values) (d tokensPage, err error) {
	r := control.Revocation{Name: q.Get("name"), User: q.Get("user"), Eauth: q.Get("eauth")}
	if err := r.Check(); err != nil {
		return d, &Refusal{http.StatusBadRequest, "Choose a log-in, or a user, in the list."}
	}
	if !v.mayCall("wheel", revokeTokens) {
		return d, &Refusal{http.StatusForbidden,
			"You may not do that: external_auth does not permit wheel " + revokeTokens + " to you."}
	}

	if d, err = logIns(ctx, v); err != nil {
		return d, err
	}

	d.Tokens.Tokens = slices.DeleteFunc(d.Tokens.Tokens, func(k control.Token) bool {
		return r.Name != "" && k.Name != r.Name ||
			r.User != "" && (k.User != r.User || r.Eauth != "" && k.Eauth != r.Eauth)
	})
	if len(d.Tokens.Tokens) == 0 {
		return d, &Refusal{http.StatusNotFound, "There is no such log-in. It may have ended meanwhile."}
	}

	d.Name = r.Name
	d.User = r.User
	d.Eauth = r.Eauth
	d.All = r.User != ""
	d.Itself = slices.ContainsFunc(d.Tokens.Tokens, func(k control.Token) bool { return k.Name == d.Own })

	return d, nil
}

// confirmTokens shows the chosen log-ins and asks for confirmation.
func confirmTokens(c *Console, ctx context.Context, v *visit) (Answer, error) {
	d, err := tokenChoice(ctx, v, v.query)
	if err != nil {
		return Answer{}, err
	}
	title := "End a log-in"
	if d.All {
		title = "End all log-ins of " + briefName(d.User)
	}
	return c.render(v, "token", http.StatusOK, page{Title: title, Data: d})
}

// endTokens ends the confirmed log-ins.
func endTokens(c *Console, ctx context.Context, v *visit) (Answer, error) {
	form, err := v.Form()
	if err != nil {
		return Answer{}, err
	}

	d, err := tokenChoice(ctx, v, form)
	if err != nil {
		return Answer{}, err
	}

	var kv []any
	for k, text := range map[string]string{"name": d.Name, "owner": d.User, "system": d.Eauth} {
		if text != "" {
			kv = append(kv, k, text)
		}
	}

	got, err := v.runCommand(ctx, "wheel", revokeTokens, kv...)
	if err != nil {
		return Answer{}, err
	}

	n, ok := wheelReturn(got).(int64)
	if !ok {
		return Answer{}, &Refusal{http.StatusConflict,
			"That was not done: " + briefName(value.StrMax(wheelReturn(got), maxName))}
	}
	if d.Itself {
		return c.redirect("/login", nil), nil
	}

	return c.redirect("/tokens", url.Values{"done": {strconv.FormatInt(n, 10)}}), nil
}
