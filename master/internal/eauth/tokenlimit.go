package eauth

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// defaultUserTokens is the default of saltern_user_sessions.
const defaultUserTokens = 1000

// tokenLimit bounds the number of tokens of each user, because some programs log in for each
// command and never log out. Overflow policy: the user's oldest tokens are removed. It counts the
// tokens that this master has made since its start, and all other tokens that the last
// [Tokens.Clean] found in the directory. So until the next Clean a user may have further tokens
// from other masters. It is safe for concurrent use.
type tokenLimit struct {
	most  int // 0: no bound
	ended atomic.Uint64

	mu      sync.Mutex
	byOwner map[owner][]given // the oldest token first
}

// owner is a user of an external system.
type owner struct{ eauth, name string }

// given is a token that was granted.
type given struct {
	token string
	start time.Time
}

// Limit sets how many tokens each user may have at once: 0 means the default, a negative number
// means no bound. Call Limit before the first token is made.
func (t *Tokens) Limit(limit int) {
	if limit == 0 {
		limit = defaultUserTokens
	}
	t.limit.most = max(limit, 0)
}

// addToken adds a new token, and returns the tokens that the caller must remove. removed reports
// whether a token no longer exists. A user may exceed the bound by a tenth. When he exceeds that
// too, addToken calls removed for all his tokens and cuts them to the bound. So most log-ins check
// no files.
func (l *tokenLimit) addToken(user owner, g given, removed func(token string) bool) (ending []given) {
	if l.most == 0 {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byOwner == nil {
		l.byOwner = map[owner][]given{}
	}

	l.byOwner[user] = append(l.byOwner[user], g)
	if len(l.byOwner[user]) <= l.most+l.most/10 {
		return nil
	}

	l.byOwner[user] = slices.DeleteFunc(l.byOwner[user], func(g given) bool { return removed(g.token) })
	return l.cutOldest(user)
}

// replace replaces the known tokens by found, the tokens that were in the directory at since. It
// keeps the tokens that were made after since, and returns the tokens that the caller must remove.
func (l *tokenLimit) replace(found map[owner][]given, since time.Time) (ending []given) {
	if l.most == 0 {
		return nil
	}

	l.mu.Lock()
	defer l.mu.Unlock()
	for user, list := range l.byOwner {
		for _, g := range list {
			known := slices.ContainsFunc(found[user], func(f given) bool { return f.token == g.token })
			if !g.start.Before(since) && !known { // keep tokens made while the directory was being read
				found[user] = append(found[user], g)
			}
		}
	}

	l.byOwner = found
	for user, list := range l.byOwner {
		slices.SortFunc(list,
			func(a, b given) int { return cmp.Or(a.start.Compare(b.start), cmp.Compare(a.token, b.token)) })
		ending = append(ending, l.cutOldest(user)...)
	}

	return ending
}

// cutOldest drops the user's oldest tokens beyond the bound from the list, and returns them. The
// caller holds mu.
func (l *tokenLimit) cutOldest(user owner) (ending []given) {
	list := l.byOwner[user]
	n := max(0, len(list)-l.most)
	l.byOwner[user] = slices.Clone(list[n:])
	return list[:n]
}

// removeExcess removes the files of the given tokens.
func (t *Tokens) removeExcess(list []given) error {
	var errs []error
	for _, g := range list {
		errs = append(errs, t.Remove(g.token))
		t.limit.ended.Add(1)
	}
	return errors.Join(errs...)
}

// isGone reports whether a token no longer exists, because it was revoked or has expired and was
// removed.
func (t *Tokens) isGone(token string) bool {
	path, err := t.pathOf(token)
	if err != nil {
		return true
	}
	_, err = os.Lstat(path)
	return errors.Is(err, fs.ErrNotExist)
}
