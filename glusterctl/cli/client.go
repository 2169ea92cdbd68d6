package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"saltern/internal/command"
)

// Client runs the gluster command. It has no state. Several goroutines may use it at once, but only
// one at a time should change a pool: glusterd refuses concurrent changes instead of queueing them.
type Client struct {
	// Runner runs the command; nil means [command.Exec] with [withoutPython].
	Runner command.Runner
	// Program is the gluster command; "" means "gluster".
	Program string
	// Timeout is how long the command waits for glusterd. Five seconds later the command is killed.
	// 0 means 20 s for commands that only read, and 120 s for changes.
	Timeout time.Duration
}

const (
	questionTimeout = 20 * time.Second
	changeTimeout   = 120 * time.Second
)

// withoutPython prevents the command from starting Python at each call to detect geo-replication,
// which nothing here uses. The command runs `gsyncd --version`, which runs $PYTHON with a script
// (cli_cmd_check_gsync_exists_cbk in GlusterFS's cli/src/cli-cmd-volume.c). That would take four
// fifths of the time of a call that only reads.
const withoutPython = "PYTHON=true"

func (c *Client) callOnce(ctx context.Context, d time.Duration, global, args []string) (answer, error) {
	if c.Timeout > 0 {
		d = c.Timeout
	}

	program := c.Program
	program = cmp.Or(program, "gluster")
	argv := []string{program, "--mode=script", "--xml", "--timeout=" + strconv.Itoa(max(1, int(d/time.Second)))}
	argv = append(append(argv, global...), args...)
	ctx, cancel := context.WithTimeout(ctx, d+5*time.Second)
	defer cancel()

	r := c.Runner
	r = cmp.Or[command.Runner](r, command.Exec{Add: []string{withoutPython}})
	out, err := r.Run(ctx, argv)
	if err != nil {
		return answer{}, err
	}

	return parseAnswer(argv, out)
}

func (c *Client) askXML(ctx context.Context, args ...string) (answer, error) {
	return c.callOnce(ctx, questionTimeout, nil, args)
}

func wrapError(action string, err error) error { return fmt.Errorf("%s: %w", action, err) }

// PoolList returns all members, including the machine whose glusterd answers.
func (c *Client) PoolList(ctx context.Context) ([]Peer, error) { return c.poolList(ctx, nil) }

// PoolListOf returns the pool as the glusterd of another machine reports it. glusterd answers
// everybody who reaches its port 24007. First check that the port answers: a silent machine blocks
// the command until its deadline.
func (c *Client) PoolListOf(ctx context.Context, host string) ([]Peer, error) {
	return c.poolList(ctx, []string{"--remote-host=" + host})
}

func (c *Client) poolList(ctx context.Context, global []string) ([]Peer, error) {
	a, err := c.callOnce(ctx, questionTimeout, global, []string{"pool", "list"})
	if err != nil {
		if refusal, ok := errors.AsType[*Error](err); ok && refusal.Ret == -22 {
			refusal.Kind = PoolUnknown
		}
		return nil, wrapError("list the pool", err)
	}
	peers, err := readPeers(a)
	if err != nil {
		return nil, wrapError("list the pool", err)
	}
	return peers, nil
}

// Volumes returns the configuration of all volumes. It needs no lock in the pool, and glusterd
// answers even if peers are disconnected.
func (c *Client) Volumes(ctx context.Context) ([]Volume, error) { return c.volumes(ctx, nil) }

// VolumesOf returns the volumes that the glusterd of another machine has; see [Client.PoolListOf].
func (c *Client) VolumesOf(ctx context.Context, host string) ([]Volume, error) {
	return c.volumes(ctx, []string{"--remote-host=" + host})
}

func (c *Client) volumes(ctx context.Context, global []string) ([]Volume, error) {
	a, err := c.callOnce(ctx, questionTimeout, global, []string{"volume", "info"})
	if err != nil {
		return nil, wrapError("list volumes", err)
	}
	vols, err := readVolumes(a)
	if err != nil {
		return nil, wrapError("list volumes", err)
	}
	return vols, nil
}

// Status returns the bricks and self-heal daemons of a started volume. It takes the lock of the
// pool. If a peer has vanished, Status hangs until its deadline and leaves the lock behind: first
// check the ports of the peers.
func (c *Client) Status(ctx context.Context, volume string) ([]Process, error) {
	return c.status(ctx, volume)
}

// StatusDetail returns only the bricks, with space and inodes; see [Client.Status].
func (c *Client) StatusDetail(ctx context.Context, volume string) ([]Process, error) {
	return c.status(ctx, volume, "detail")
}

func (c *Client) status(ctx context.Context, volume string, args ...string) ([]Process, error) {
	a, err := c.askXML(ctx, append([]string{"volume", "status", volume}, args...)...)
	if err != nil {
		return nil, wrapError("volume status", err)
	}
	ps, err := readStatus(a, volume)
	if err != nil {
		return nil, wrapError("volume status", err)
	}
	return ps, nil
}

// HealSummary returns the number of entries to heal on each brick.
func (c *Client) HealSummary(ctx context.Context, volume string) ([]Heal, error) {
	return c.healInfo(ctx, volume, "summary")
}

// HealEntries returns the entries to heal. With thousands of entries it is slow: use the summary if
// only numbers are needed.
func (c *Client) HealEntries(ctx context.Context, volume string) ([]Heal, error) {
	return c.healInfo(ctx, volume)
}

// SplitBrain returns the entries on which the copies disagree and only an administrator can decide.
func (c *Client) SplitBrain(ctx context.Context, volume string) ([]Heal, error) {
	return c.healInfo(ctx, volume, "split-brain")
}

func (c *Client) healInfo(ctx context.Context, volume string, args ...string) ([]Heal, error) {
	a, err := c.askXML(ctx, append([]string{"volume", "heal", volume, "info"}, args...)...)
	if err != nil {
		return nil, wrapError("heal info", err)
	}
	hs, err := readHeal(a)
	if err != nil {
		return nil, wrapError("heal info", err)
	}
	return hs, nil
}

// Change runs a command that changes something. If glusterd refuses because the change was already
// made, Change returns nil. [KindOf] classifies other errors.
func (c *Client) Change(ctx context.Context, args ...string) error {
	_, err := c.callOnce(ctx, changeTimeout, nil, args)
	if err != nil && KindOf(err) == Done {
		return nil
	}
	if err != nil {
		return wrapError(strings.Join(args[:min(2, len(args))], " "), err)
	}
	return nil
}

// TakeFrom resolves a split-brain of a file: the file on the given brick replaces those on the
// other bricks. For files without a split-brain glusterd refuses the command. glusterd's answer is
// plain text (glfsheal, 10.3).
func (c *Client) TakeFrom(ctx context.Context, volume, brick, path string) error {
	_, err := c.callOnce(ctx, changeTimeout, nil,
		[]string{"volume", "heal", volume, "split-brain", "source-brick", brick, path})
	if e, ok := errors.AsType[*Error](err); ok && e.Exit == 0 &&
		(strings.Contains(e.Text, "split-brain resolved for") || strings.HasPrefix(e.Text, "Healed ")) {
		return nil
	}
	if err != nil {
		return wrapError("settle a split-brain", err)
	}
	return nil
}
