package main

import (
	"bytes"
	"context"
	"crypto/rsa"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"

	"saltern/master/crypt"
	"saltern/master/value"
	"saltern/test/minion"
)

const findJob = "saltutil.find_job"

// order is a job as it was published. It is not changed.
type order struct {
	jid, fun, kind string
	target         any
	args           []any
}

func newOrder(m *value.Map) (*order, error) {
	o := &order{
		jid:    m.Str("jid"),
		fun:    m.Str("fun"),
		kind:   m.Str("tgt_type"),
		target: m.Value("tgt"),
		args:   m.List("arg"),
	}
	switch o.kind {
	case "", "glob", "list":
		return o, nil
	default: // which takes grains or more, and these minions have none
		return nil, fmt.Errorf("job %s has a target of the kind %s: swarm knows globs and lists", o.fun, o.kind)
	}
}

// meant reports whether the job is for a minion (salt/matchers).
func (o *order) meant(id string) bool {
	if o.kind != "list" {
		glob, _ := o.target.(string)
		ok, err := path.Match(glob, id)
		return ok && err == nil
	}
	if ids, ok := o.target.([]any); ok {
		return slices.Contains(ids, any(id))
	}
	text, _ := o.target.(string)
	return slices.Contains(strings.Split(text, ","), id)
}

// opener opens what the master publishes, once for all minions: a master has
// one key for publishes.
type opener struct {
	mu     sync.Mutex
	master *rsa.PublicKey
	raw    []byte // what order was made of
	order  *order
}

func (o *opener) open(ctx context.Context, p *player, raw []byte) (*order, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if bytes.Equal(raw, o.raw) {
		return o.order, nil
	}

	m, err := minion.Open(raw, o.master, *p.publics.Load())
	if errors.Is(err, crypt.ErrOpen) { // the master has another key since
		p.s.again.Add(1)
		if err = p.signIn(ctx); err == nil {
			m, err = minion.Open(raw, o.master, *p.publics.Load())
		}
	}

	if err != nil {
		return nil, err
	}

	order, err := newOrder(m)
	if err != nil {
		return nil, err
	}

	o.raw, o.order = raw, order
	return order, nil
}
