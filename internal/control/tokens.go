package control

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"saltern/internal/rpc"
)

// MaxTokens bounds the tokens of one answer.
const MaxTokens = 500

// Token describes a log-in that a master has granted. It never contains the token itself.
type Token struct {
	Name  string `json:"name"` // see [TokenName]
	User  string `json:"user"`
	Eauth string `json:"eauth"`
	// From is the address of the user at log-in. Node is the node whose master granted the log-in.
	// Both are "" if unknown.
	From  string    `json:"from,omitempty"`
	Node  string    `json:"node,omitempty"`
	Start time.Time `json:"start"`
	Until time.Time `json:"until"`
}

// Tokens is a list of log-ins, the newest first.
type Tokens struct {
	Tokens []Token `json:"tokens"`
	More   int     `json:"more,omitempty"` // number of log-ins that are not listed
}

// Revocation selects the log-ins to end: one by its name, or all of a user. Eauth restricts it to
// log-ins of one authentication system; empty: all systems.
type Revocation struct {
	Name  string `json:"name,omitempty"`
	User  string `json:"user,omitempty"`
	Eauth string `json:"eauth,omitempty"`
}

// Revoked is the number of log-ins that were ended.
type Revoked struct {
	Count int `json:"count"`
}

// ErrNoSuchToken matches refusals with [rpc.CodeNoSuchToken].
var ErrNoSuchToken error = &rpc.Error{Code: rpc.CodeNoSuchToken, Text: "no such log-in; it may have ended meanwhile"}

// TokenName returns a token's name for people: 64 bits of a digest. The name grants no access, and
// the token cannot be derived from it.
func TokenName(token string) string {
	sum := sha256.Sum256([]byte("name of a token\n" + token))
	return hex.EncodeToString(sum[:8])
}

// Check returns an error if the revocation does not name a log-in or a user.
func (r Revocation) Check() error {
	name, err := hex.DecodeString(r.Name)
	switch {
	case (r.Name == "") == (r.User == ""):
		return &rpc.Error{Code: rpc.CodeBadRequest, Text: "either the name of a log-in or a user is needed"}
	case err != nil || r.Name != "" && len(name) != 8:
		return &rpc.Error{
			Code: rpc.CodeBadRequest,
			Text: "the name of a log-in has 16 hexadecimal digits, as the list shows it",
		}
	case len(r.User) > maxUser || len(r.Eauth) > maxUser:
		return &rpc.Error{Code: rpc.CodeBadRequest, Text: "the name of a user or system is too long"}
	}
	return nil
}

// maxUser bounds names of users and of authentication systems in bytes.
const maxUser = 256

// Tokens returns the log-ins that are valid now.
func (c *Client) Tokens(ctx context.Context) (Tokens, error) {
	t, err := ask(ctx, &c.rpc, listTokens, rpc.None{})
	return t.Clean(), err
}

// RevokeTokens ends log-ins on all masters of a cluster, and returns how many it has ended. If no
// log-in matches, the error matches [ErrNoSuchToken].
func (c *Client) RevokeTokens(ctx context.Context, r Revocation) (Revoked, error) {
	return ask(ctx, &c.rpc, revokeTokens, r)
}

// Clean returns t with its list cut to its bound and each text made safe for one line.
func (t Tokens) Clean() Tokens {
	t.Tokens = t.Tokens[:min(len(t.Tokens), MaxTokens)]
	for i := range t.Tokens {
		k := &t.Tokens[i]
		cleanLines(&k.Name, &k.User, &k.Eauth, &k.From, &k.Node)
	}
	t.More = max(t.More, 0)
	return t
}
