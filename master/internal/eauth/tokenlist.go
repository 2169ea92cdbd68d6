package eauth

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"saltern/internal/control"
)

// maxLooked bounds the number of tokens that are read for one list, because the tokens of programs
// that never log out remain in the directory until they expire.
const maxLooked = 20_000

// LogIns returns the log-ins that are valid now. It implements control.Master.
func (t *Tokens) LogIns() (control.Tokens, error) {
	out := control.Tokens{Tokens: []control.Token{}}
	names, err := t.allByAge()
	if err != nil {
		return out, err
	}

	out.More = max(0, len(names)-maxLooked)
	for _, token := range names[out.More:] {
		tok, node, err := readWhere(filepath.Join(t.dir, token+".p"))
		if err != nil || !t.now().Before(tok.Expire) {
			continue // the log-in ended meanwhile, or the file is no token
		}

		out.Tokens = append(out.Tokens, control.Token{
			Name:  control.TokenName(token),
			User:  tok.Name,
			Eauth: tok.Eauth,
			From:  tok.From,
			Node:  node,
			Start: tok.Start.UTC(),
			Until: tok.Expire.UTC(),
		})
	}

	slices.SortFunc(out.Tokens,
		func(a, b control.Token) int { return cmp.Or(b.Start.Compare(a.Start), cmp.Compare(a.Name, b.Name)) })
	if n := len(out.Tokens) - control.MaxTokens; n > 0 {
		out.Tokens, out.More = out.Tokens[:control.MaxTokens], out.More+n
	}

	return out, nil
}

// EndLogIns revokes log-ins. It implements control.Master.
func (t *Tokens) EndLogIns(r control.Revocation) (out control.Revoked, err error) {
	if err := r.Check(); err != nil {
		return out, err
	}

	names, err := t.allByAge()
	if err != nil {
		return out, err
	}

	for _, token := range names {
		if r.Name != "" && control.TokenName(token) != r.Name {
			continue
		}

		tok, err := readToken(filepath.Join(t.dir, token+".p"))
		if err != nil || r.User != "" && tok.Name != r.User || r.Eauth != "" && tok.Eauth != r.Eauth {
			continue
		}

		if err := t.Remove(token); err != nil {
			return out, err
		}

		if t.now().Before(tok.Expire) {
			out.Count++
		}
	}

	if out.Count == 0 {
		return out, control.ErrNoSuchToken
	}

	return out, nil
}

// allByAge returns the tokens in the directory, sorted by the age of their files, the oldest first.
func (t *Tokens) allByAge() ([]string, error) {
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return nil, fmt.Errorf("list tokens: %w", err)
	}

	type file struct {
		token string
		made  int64
	}

	var files []file
	for _, e := range entries {
		token, ok := strings.CutSuffix(e.Name(), ".p")
		if _, err := t.pathOf(token); !ok || err != nil || !e.Type().IsRegular() {
			continue
		}

		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("list tokens: %w", err)
		}

		files = append(files, file{token, info.ModTime().UnixNano()})
	}

	slices.SortFunc(files,
		func(a, b file) int { return cmp.Or(cmp.Compare(a.made, b.made), strings.Compare(a.token, b.token)) })
	out := make([]string, len(files))
	for i, f := range files {
		out[i] = f.token
	}

	return out, nil
}
