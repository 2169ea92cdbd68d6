package eauth

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"saltern/master/internal/datafile"
	"saltern/master/value"
)

// Token is the token of a log-in.
type Token struct {
	Token, Name, Eauth string
	Start, Expire      time.Time
	Groups             []string
	// Permissions are the permissions stored in the token. It may be nil: none are stored.
	Permissions []any
	// From is the address of the log-in, or "" if unknown.
	From string
}

// Map returns the token in the form that clients receive (salt/auth/__init__.py mk_token).
func (t Token) Map() *value.Map {
	m := value.NewMap("start", seconds(t.Start), "expire", seconds(t.Expire), "name", t.Name, "eauth", t.Eauth)
	if t.Permissions != nil {
		m.Set("auth_list", t.Permissions)
	}
	if len(t.Groups) > 0 {
		m.Set("groups", t.Groups)
	}
	m.Set("token", t.Token)
	return m
}

func seconds(t time.Time) float64 { return float64(t.UnixMicro()) / 1e6 }

// Tokens stores each token in a file of mode 0600, in the format of Salt's localfs cache: {"data":
// …, "_expires": …}. The file also contains the address and the node of the log-in, next to "data".
type Tokens struct {
	dir, node string
	now       func() time.Time
	limit     tokenLimit
}

// errNoToken means that a token is unknown, malformed or expired.
var errNoToken = errors.New("no such token")

// tokenFile bounds the size of one token's file.
var tokenFile = datafile.Bound{Bytes: 128 << 10, Nodes: 16384}

// OpenTokens creates the directory if it is missing. node is the node name for new tokens.
func OpenTokens(dir, node string) (*Tokens, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("create the directory for tokens: %w", err)
	}
	return &Tokens{dir: dir, node: node, now: time.Now}, nil
}

// pathOf returns the path of a token's file. It returns an error for anything but the hex digests
// that Make returns.
func (t *Tokens) pathOf(token string) (string, error) {
	if b, err := hex.DecodeString(token); err != nil || len(b) < 16 || len(b) > 64 {
		return "", errNoToken
	}
	return filepath.Join(t.dir, token+".p"), nil
}

// Make stores a new token and returns it. The token expires after life. The user, system, groups
// and address of the token come from wanted. If the user has too many tokens, Make removes his
// oldest ones ([Tokens.Limit]).
func (t *Tokens) Make(wanted Token, life time.Duration, now time.Time) (Token, error) {
	seed := make([]byte, 512)
	if _, err := rand.Read(seed); err != nil {
		return Token{}, fmt.Errorf("make a token: %w", err)
	}

	sum := sha256.Sum256(seed)
	tok := wanted
	tok.Token = hex.EncodeToString(sum[:])
	tok.Start = now
	tok.Expire = now.Add(life)
	p, err := t.pathOf(tok.Token)
	if err != nil {
		return Token{}, err
	}

	if err := tokenFile.Write(p,
		value.NewMap("data", tok.Map(), "_expires", seconds(tok.Expire), fromKey, tok.From, nodeKey, t.node),
		true); err != nil {
		return Token{}, fmt.Errorf("keep a token: %w", err)
	}

	ending := t.limit.addToken(owner{tok.Eauth, tok.Name}, given{tok.Token, tok.Start}, t.isGone)
	if err := t.removeExcess(ending); err != nil {
		_ = t.Remove(tok.Token)
		return Token{}, fmt.Errorf("end the oldest tokens of a user: %w", err)
	}

	return tok, nil
}

// Get returns a valid token. If the token has expired, Get removes its file and returns an error.
func (t *Tokens) Get(token string, now time.Time) (Token, error) {
	p, err := t.pathOf(token)
	if err != nil {
		return Token{}, err
	}

	tok, err := readToken(p)
	if errors.Is(err, fs.ErrNotExist) {
		return Token{}, errNoToken
	}
	if err != nil {
		return Token{}, fmt.Errorf("read a token: %w", err)
	}
	if !now.Before(tok.Expire) {
		_ = os.Remove(p)
		return Token{}, errNoToken
	}

	tok.Token = token
	return tok, nil
}

// Remove revokes a token. If the token does not exist, Remove returns nil.
func (t *Tokens) Remove(token string) error {
	p, err := t.pathOf(token)
	if err != nil {
		return err
	}
	if err := os.Remove(p); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove a token: %w", err)
	}
	return nil
}

// Clean removes expired tokens, files that are no tokens, and the oldest tokens of each user who
// has too many.
func (t *Tokens) Clean(now time.Time) error {
	found := map[owner][]given{}
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return fmt.Errorf("list tokens: %w", err)
	}

	for _, e := range entries {
		p := filepath.Join(t.dir, e.Name())
		if !e.Type().IsRegular() || filepath.Ext(p) != ".p" {
			continue
		}

		tok, err := readToken(p)
		if err != nil || !now.Before(tok.Expire) {
			_ = os.Remove(p)
			continue
		}

		user := owner{tok.Eauth, tok.Name}
		found[user] = append(found[user], given{strings.TrimSuffix(e.Name(), ".p"), tok.Start})
	}

	if err := t.removeExcess(t.limit.replace(found, now)); err != nil {
		return fmt.Errorf("end the oldest tokens of users: %w", err)
	}

	return nil
}

const (
	// fromKey and nodeKey are keys next to "data" in a token's file. Salt does not read them.
	fromKey = "saltern_from"
	nodeKey = "saltern_node"
)

func readToken(path string) (Token, error) {
	tok, _, err := readWhere(path)
	return tok, err
}

// readWhere reads a token and the node that granted it.
func readWhere(path string) (Token, string, error) {
	m, err := tokenFile.ReadMap(path)
	if err != nil {
		return Token{}, "", err
	}

	from, node := m.Str(fromKey), m.Str(nodeKey)
	if d := m.Map("data"); d != nil {
		m = d
	}

	tok := Token{
		Name:        m.Str("name"),
		Eauth:       m.Str("eauth"),
		Start:       unixTime(m, "start"),
		Expire:      unixTime(m, "expire"),
		Groups:      m.Texts("groups"),
		Permissions: m.List("auth_list"),
		From:        from,
	}

	return tok, node, nil
}

func unixTime(m *value.Map, key string) time.Time {
	v, _ := m.Get(key)
	switch v := v.(type) {
	case float64:
		return time.UnixMicro(int64(v * 1e6))
	case int64:
		return time.Unix(v, 0)
	}
	return time.Time{}
}
