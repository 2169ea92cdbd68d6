// Package salttools lists the minions of this node's master, through the control socket, and
// changes their keys by running Salt's own tools, so that events and reactors see the same as after
// a manual call.
package salttools

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"saltern/internal/audit"
	"saltern/internal/command"
	"saltern/internal/control"
	"saltern/supervisor/status"
)

// maxToolOutput limits the output of one of Salt's tools, in bytes. It leaves room for more
// lines than any master has minions.
const maxToolOutput = 64 << 20

// Tools runs Salt's tools for one master.
type Tools struct {
	Control *control.Client
	Master  string // path of the master's program; the tools are beside it
	Config  string // path of the master's configuration folder
	Env     []string
}

// runTool runs a tool and returns its output. args must not contain secrets, because every user of
// the machine can see them.
func (t Tools) runTool(ctx context.Context, name string, args ...string) ([]byte, error) {
	path := filepath.Join(filepath.Dir(t.Master), name)
	argv := append([]string{name, "-c", t.Config}, args...)
	// all tools are one program, which may be installed under the name salt only
	if _, err := os.Stat(path); err != nil {
		path = filepath.Join(filepath.Dir(t.Master), "salt")
	}

	out, err := command.Do(ctx,
		command.Exec{Path: path, Env: t.Env, Add: audit.Env(ctx), MaxOutput: maxToolOutput}, argv...)
	if errors.Is(err, command.ErrOutput) {
		return nil, fmt.Errorf("%s: it printed more than %d bytes", name, maxToolOutput)
	}
	if err != nil {
		what := name
		for _, a := range args {
			if !strings.HasPrefix(a, "-") && a != "json" {
				what += " " + a
				break
			}
		}

		return nil, fmt.Errorf("%s: %w", what, err)
	}

	return out, nil
}

// Minions returns the master's minions. If finger is set, it includes the fingerprints of their
// keys.
func (t Tools) Minions(ctx context.Context, finger bool) (status.MinionView, error) {
	list, err := t.Control.Minions(ctx, finger)
	if err != nil {
		return status.MinionView{}, err
	}
	return viewOf(list), nil
}

// viewOf returns a master's list in the form that nodes exchange.
func viewOf(list control.Minions) status.MinionView {
	v := status.MinionView{Subscriptions: list.Subscriptions, Since: list.Began()}
	for _, m := range list.Minions[:min(len(list.Minions), status.MaxMinions)] {
		v.Minions = append(v.Minions, status.Minion{
			ID:        m.ID,
			Key:       m.Key,
			Address:   m.Address,
			Finger:    m.Finger,
			Connected: m.Connected,
			Seen:      m.Heard(),
			Refused:   m.Refused,
		})
	}
	return v
}
