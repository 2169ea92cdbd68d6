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

// Token describes a log-in that a master has given out. The token itself is never told.
type Token struct {
	Name  string `json:"name"` // see [TokenName]
	User  string `json:"user"`
	Eauth string `json:"eauth"`
	// From is the address of the log-in, and Node the master's node; "" where that is
	// not known.
	From  string    `json:"from,omitempty"`
	Node  string    `json:"node,omitempty"`
	Start time.Time `json:"start"`
	Until time.Time `json:"until"`
}

// Tokens are log-ins, the newest first.
type Tokens struct {
	Tokens []Token `json:"tokens"`
	More   int     `json:"more,omitempty"` // that are not listed
}

// Revocation says which log-ins end: one by its name, or all of a user. Eauth leaves
// those of other systems alone; empty: any.
type Revocation struct {
	Name  string `json:"name,omitempty"`
	User  string `json:"user,omitempty"`
	Eauth string `json:"eauth,omitempty"`
}

// Revoked tells how many log-ins have ended.
type Revoked struct {
	Count int `json:"count"`
}

// ErrNoSuchToken matches refusals with [rpc.CodeNoSuchToken].
var ErrNoSuchToken error = &rpc.Error{Code: rpc.CodeNoSuchToken, Text: "no such log-in; it may have ended meanwhile"}

// TokenName returns the name of a token for people: 64 bits of a digest. It proves nothing, and
// nobody finds the token from it.
func TokenName(token string) string {
	sum := sha256.Sum256([]byte("name of a token\n" + token))
	return hex.EncodeToString(sum[:8])
}

// Check refuses what names nothing.
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

// maxUser bounds names of users and systems in bytes.
const maxUser = 256

// Tokens returns who is logged in.
func (c *Client) Tokens(ctx context.Context) (Tokens, error) {
	t, err := ask(ctx, &c.rpc, listTokens, rpc.None{})
	return t.Clean(), err
}

// RevokeTokens ends log-ins, on all masters of a cluster. The error matches
// [ErrNoSuchToken] if there are none.
func (c *Client) RevokeTokens(ctx context.Context, r Revocation) (Revoked, error) {
	return ask(ctx, &c.rpc, revokeTokens, r)
}

// Clean bounds what the other side says and makes it fit for one line each.
func (t Tokens) Clean() Tokens {
	t.Tokens = t.Tokens[:min(len(t.Tokens), MaxTokens)]
	for i := range t.Tokens {
		k := &t.Tokens[i]
		cleanLines(&k.Name, &k.User, &k.Eauth, &k.From, &k.Node)
	}
	t.More = max(t.More, 0)
	return t
}
