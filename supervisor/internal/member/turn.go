package member

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"saltern/supervisor/api"
	"saltern/supervisor/internal/service"
	"saltern/supervisor/nodes"
	"saltern/supervisor/storage"
)

// A machine that is about to be restarted requests the cluster's turn. It gets the turn when no
// other node has the turn and all other nodes work; the machine is then drained by the table. Its
// supervisor releases the turn after the restart, once the node serves, its copy of the data is
// complete, and its version of the system is not on trial.

// turns acquires the cluster's turn to restart for this node, and releases it.
type turns struct {
	env       Env
	volume    *storage.Manager // may be nil: no shared volume
	observer  Observer
	onTrial   func() bool // reports whether the version of the system is on trial; may be nil: never on trial
	peers     *peers
	life      string         // identifies this start of the supervisor
	returning service.Worker // releases the turn after a restart
}

// Turn returns which node has the turn, and whether the cluster can do without this node now.
func (m Verbs) Turn(context.Context) (api.Turn, error) {
	t := m.keeper.Table()
	if self, ok := m.Self(); !ok || self.State == nodes.Removed || len(t.Peers(self.Name)) == 0 {
		return api.Turn{Alone: true}, nil
	}
	var out api.Turn
	if now, ok := t.HasTurn(m.env.Now()); ok {
		out.Now, out.Mine = &now, now.Node == m.env.Settings.Node && now.Life == m.turns.life
	}
	if err := m.turns.refused(); err != nil {
		out.Needed = err.Error()
	}
	out.Sessions = sessionsAt(m.env.Settings.Master.PublishPort)
	return out, nil
}

// TakeTurn acquires the turn for this node and drains the node. If force is set, it does so even if
// the cluster needs the node now.
func (m Verbs) TakeTurn(ctx context.Context, force bool) error {
	if err := m.turns.refused(); err != nil && !force {
		return fmt.Errorf("%w: %w", api.ErrState, err)
	}

	_, err := m.peers.change(ctx, func(t *nodes.Table) error {
		return t.TakeTurn(nodes.Turn{
			Node:  m.env.Settings.Node,
			Life:  m.turns.life,
			Since: m.env.Now().UTC().Truncate(time.Second),
		},
			force)
	})
	if errors.Is(err, nodes.ErrTurn) {
		return fmt.Errorf("%w: %w", api.ErrState, err)
	}

	return err
}

// EndTurn releases the turn.
func (m Verbs) EndTurn(ctx context.Context) error { return m.turns.giveBack(ctx, false) }

// giveBack releases the turn, if this node has it. options selects which turn to release: the one
// to change options, or the one to restart the machine.
func (t *turns) giveBack(ctx context.Context, options bool) error {
	_, err := t.peers.change(ctx, func(table *nodes.Table) error {
		if table.Turn == nil || table.Turn.Options != options || !table.GiveTurn(t.env.Settings.Node) {
			return errNotOurs
		}
		return nil
	})
	if errors.Is(err, errNotOurs) {
		return nil
	}
	return err
}

var errNotOurs = errors.New("another node has the turn, or none")

// refused returns why the cluster cannot do without this node now, or nil if it can.
func (t *turns) refused() error {
	others, _ := t.peers.statusLines()
	for _, l := range others {
		switch {
		case l.State != "ready":
			return fmt.Errorf("node %s is %s; with this one away as well minions might find nobody", l.Name, l.State)
		case !l.MasterAnswers():
			return fmt.Errorf("the master of node %s is %s, and others serve its minions; with this one away as well they might find nobody",
				l.Name, l.Master)
		case l.Storage != "ok" && l.Storage != "?":
			return fmt.Errorf("the storage of node %s is %s; its copy alone might not do", l.Name, l.Storage)
		}
	}
	return complete(volumeState(t.volume))
}

// complete returns nil if every copy of the shared volume is up and has all files. Otherwise the
// error says what is missing. v may be nil: there is no volume.
func complete(v *storage.State) error {
	switch {
	case v == nil || len(v.Bricks) < 2:
		return nil
	case v.Heal.Pending > 0:
		return fmt.Errorf("%d files of the shared volume are still copied between the nodes", v.Heal.Pending)
	case v.Doing != "":
		return fmt.Errorf("the shared volume is being changed (%s)", v.Doing)
	}

	for _, b := range v.Bricks {
		if b.Known && !b.Up {
			return fmt.Errorf("the copy %s of the shared volume is away", b.Name)
		}
	}

	return nil
}

// A node releases the turn after these times even if its restart is not complete.
const (
	// notRestarted applies to a node that has not restarted: after this time, no restart is
	// expected.
	notRestarted = 15 * time.Minute
	// notWhole applies to a node that has restarted but does not do all its work. After this time
	// an administrator must repair the node, and may need to restart another one for that. While
	// the node's own master or storage is not well, the other nodes are still refused the turn, see
	// refused.
	notWhole = 30 * time.Minute
)

// reconcile releases the turn once this node has restarted and does all its work again, or when
// notRestarted or notWhole has passed. Member.Run calls it about once a second.
func (t *turns) reconcile(ctx context.Context) {
	table := t.peers.keeper.Table()
	now, ok := table.HasTurn(t.env.Now())
	if !ok || now.Node != t.env.Settings.Node || !t.isStale(now) {
		return
	}

	missing := t.missing()
	if !now.Options && missing != nil && t.env.Now().Sub(now.Since) < notWhole {
		return
	}

	t.returning.Start(func() {
		if !now.Options && t.onTrial != nil && t.onTrial() {
			return
		}

		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if err := t.giveBack(ctx, now.Options); err != nil {
			t.env.Log.Warn("cannot tell the cluster that this node has restarted", "error", err)
			return
		}

		switch {
		case now.Options:
			t.env.Log.Info("the turn for new options that this node had before its start is given back")
		case missing != nil:
			t.env.Log.Warn("the turn to restart is given back, though this node does not do all its work", "error", missing)
		default:
			t.env.Log.Info("this node has restarted and does all its work; the next one may")
		}
	})
}

// missing returns what keeps this node from doing all its work, or nil.
func (t *turns) missing() error {
	if !t.observer.Document().ServesItself() {
		return errors.New("its own master or its storage is not well")
	}

	v := volumeState(t.volume)
	if v != nil && (!v.Ready || len(v.Bricks) > 1 && !v.Heal.Known) {
		return errors.New("the state of the shared volume is not known")
	}
	return complete(v)
}

// isStale reports whether an earlier start of the supervisor took the turn, or whether the turn was
// taken so long ago that no restart will follow.
func (t *turns) isStale(now nodes.Turn) bool {
	return now.Life != t.life || !now.Options && t.env.Now().Sub(now.Since) > notRestarted
}

// sessionsAt returns the number of established connections to a local port of this machine. It
// reads the kernel's /proc/net/tcp (local address, remote address, state; state 01 is ESTABLISHED).
func sessionsAt(port int) int {
	n := 0
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}

		end := fmt.Sprintf(":%04X", port)
		for s := bufio.NewScanner(f); s.Scan(); {
			if c := strings.Fields(s.Text()); len(c) > 3 && c[3] == "01" && strings.HasSuffix(c[1], end) {
				n++
			}
		}

		_ = f.Close()
	}

	return n
}
