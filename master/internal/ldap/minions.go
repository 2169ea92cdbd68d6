package ldap

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"saltern/master/value"
)

// Bounds of cached ldap(…) targets. The options limit the number of targets.
const (
	maxComputers = 20_000 // computers of one target
	pageSize     = 500    // number of entries in a page; servers permit at most 500 to 1,000
)

// prefix is the beginning of a target that names an entry of the directory.
const prefix = "ldap("

// IsTarget reports whether a target of external_auth names an entry of a directory.
func IsTarget(target string) bool { return strings.HasPrefix(target, prefix) }

// computers caches the minions of ldap(…) targets. Only one search runs at a time; other callers
// wait until that search ends or their context ends.
type computers struct {
	turn   chan struct{}
	mu     sync.Mutex
	byBase map[string]lookup
}

type lookup struct {
	ids   []string
	until time.Time
}

func newComputers() computers {
	return computers{turn: make(chan struct{}, 1), byBase: map[string]lookup{}}
}

func (c *computers) lookUp(base string, now time.Time) ([]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	l, ok := c.byBase[base]
	return l.ids, ok && now.Before(l.until)
}

func (c *computers) remember(base string, l lookup) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.byBase[base] = l
}

// Expand replaces the ldap(…) targets in permissions by minions, as salt/auth/ldap.py process_acl
// does. A minion matches if its id is the cn of a computer below the entry, in lower case and
// without auth.ldap.minion_stripdomains. All minions of one grant are combined into one target, so
// that one job may go to several of them. If a target cannot be resolved, it grants nothing, and
// Expand logs a warning.
func (d *Directory) Expand(ctx context.Context, grants []any) []any {
	if !slices.ContainsFunc(grants, hasTarget) {
		return grants
	}

	var out []any
	for _, g := range grants {
		if !hasTarget(g) {
			out = append(out, g)
			continue
		}

		for k, functions := range g.(*value.Map).All() {
			target, _ := k.(string)
			if !IsTarget(target) {
				out = append(out, value.NewMap(k, functions))
				continue
			}

			base := strings.TrimSuffix(strings.TrimPrefix(target, prefix), ")")
			if ids := d.minions(ctx, base); len(ids) > 0 {
				out = append(out, value.NewMap("L@"+strings.Join(ids, ","), functions))
			}
		}
	}

	return out
}

// hasTarget reports whether a grant has an ldap(…) target.
func hasTarget(grant any) bool {
	m, ok := grant.(*value.Map)
	if !ok {
		return false
	}
	for k := range m.All() {
		if t, ok := k.(string); ok && IsTarget(t) {
			return true
		}
	}
	return false
}

func (d *Directory) minions(ctx context.Context, base string) []string {
	if ids, ok := d.computers.lookUp(base, d.now()); ok {
		return ids
	}

	select {
	case d.computers.turn <- struct{}{}:
		defer func() { <-d.computers.turn }()
	case <-ctx.Done():
		return nil
	}

	if ids, ok := d.computers.lookUp(base, d.now()); ok {
		return ids
	}

	ids, err := d.search(ctx, base)
	keep := time.Minute
	if err != nil {
		d.log.Warn("an ldap() target of external_auth cannot be looked up; it grants nothing for now",
			"target", base, "error", err)
		keep = 10 * time.Second
	}

	d.computers.remember(base, lookup{ids, d.now().Add(keep)})
	return ids
}

// search returns the minion ids of the computers below an entry.
func (d *Directory) search(ctx context.Context, base string) ([]string, error) {
	if d.opts.BindPassword == "" || d.opts.BindDN == "" {
		return nil, errors.New("ldap() targets need a service account: set auth.ldap.binddn and auth.ldap.bindpw")
	}

	ctx, cancel := context.WithTimeout(ctx, d.loginTime)
	defer cancel()
	s, err := d.dialAny(ctx)
	if err != nil {
		return nil, err
	}
	defer s.sayGoodbye()

	if err := d.bindService(s); err != nil {
		return nil, err
	}

	found, err := s.search(query{
		base:   base,
		scope:  2,
		filter: "(objectClass=computer)",
		attrs:  []string{"cn"},
		most:   maxComputers,
		page:   pageSize,
	})
	if err != nil {
		return nil, fmt.Errorf("look for computers: %w", err)
	}

	var ids []string
	for _, e := range found {
		for _, cn := range firstOf(e.values("cn")) {
			if id := d.minionOf(cn); plainID(id) {
				ids = append(ids, id)
			}
		}
	}

	slices.Sort(ids)
	return slices.Compact(ids), nil
}

// minionOf returns the minion id of the computer with this cn.
func (d *Directory) minionOf(cn string) string {
	id := strings.ToLower(cn)
	for _, domain := range d.opts.StripDomains {
		if short, ok := strings.CutSuffix(id, domain); ok && domain != "" {
			return short
		}
	}
	return id
}

// plainID reports whether an id matches only itself in a compound target. The directory may name
// minions, but must not inject expressions.
func plainID(id string) bool {
	return id != "" && len(id) <= maxName && !strings.ContainsFunc(id, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || strings.ContainsRune("-_.:", r))
	})
}
