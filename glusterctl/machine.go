package glusterctl

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"time"

	"saltern/glusterctl/cli"
	"saltern/glusterctl/disk"
	"saltern/internal/pause"
)

// Machine does work on the machine of a [Controller] for which there is no command of GlusterFS.
type Machine interface {
	// Dial tries a TCP connection to address:24007.
	Dial(ctx context.Context, address string) error
	// Alive reports whether a brick or self-heal daemon of this machine runs.
	Alive(p cli.Process) bool
	// ClearBrick removes glusterd's marks from an empty directory.
	ClearBrick(ctx context.Context, dir string) error
	// StartDaemon starts the local glusterd, or leaves that to another program.
	StartDaemon(ctx context.Context) error
}

// ThisMachine is the machine of this process. Its glusterd is started by another program.
type ThisMachine struct{}

// Dial connects to address and closes the connection. It waits at most one second.
func (ThisMachine) Dial(ctx context.Context, address string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, Port))
	if err != nil {
		return err
	}
	return conn.Close()
}

// Alive reports whether the process of GlusterFS runs on this machine.
func (ThisMachine) Alive(p cli.Process) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", p.PID))
	return err == nil && strings.HasPrefix(string(b), "glusterfs")
}

// ClearBrick needs CAP_SYS_ADMIN, see [disk.ClearBrick].
func (ThisMachine) ClearBrick(_ context.Context, dir string) error { return disk.ClearBrick(dir) }

// StartDaemon does nothing.
func (ThisMachine) StartDaemon(context.Context) error { return nil }

// Clock returns the time, and waits between tries.
type Clock interface {
	Now() time.Time
	// Sleep waits for d. If ctx ends first, it returns the error of ctx.
	Sleep(ctx context.Context, d time.Duration) error
	// Jitter returns a random number in [0, 1). Pauses depend on it, so that nodes do not repeat a
	// step at the same moment.
	Jitter() float64
}

// SystemClock is the clock of this machine.
type SystemClock struct{}

// Now implements [Clock].
func (SystemClock) Now() time.Time { return time.Now() }

// Sleep implements [Clock].
func (SystemClock) Sleep(ctx context.Context, d time.Duration) error { return pause.For(ctx, d) }

// Jitter implements [Clock].
func (SystemClock) Jitter() float64 { return rand.Float64() }
