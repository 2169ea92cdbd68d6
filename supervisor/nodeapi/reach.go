package nodeapi

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// reachTakes is how long a port may take to answer.
const reachTakes = 3 * time.Second

const maxReach = 8

// TryPorts dials ports of a machine. A port that refuses the connection is reported as reached:
// only dropped packets make a port fail.
func TryPorts(ctx context.Context, address string, ports []int) []Reach {
	ports = ports[:min(len(ports), maxReach)]
	out := make([]Reach, len(ports))
	ctx, cancel := context.WithTimeout(ctx, reachTakes)
	defer cancel()

	var all sync.WaitGroup
	for i, p := range ports {
		all.Go(func() {
			out[i].Port = p
			var d net.Dialer
			c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(address, strconv.Itoa(p)))
			switch {
			case err == nil:
				_ = c.Close()
			case errors.Is(err, syscall.ECONNREFUSED):
			case ctx.Err() != nil:
				out[i].Error = "no answer in " + reachTakes.String()
			default:
				out[i].Error = lastError(err)
			}
		})
	}

	all.Wait()
	return out
}

// reachBack dials ports of the machine that sent the request. It never dials another machine.
func reachBack(ctx context.Context, remote string, ports []int) []Reach {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return nil
	}
	valid := make([]int, 0, len(ports))
	for _, p := range ports {
		if p > 0 && p < 65536 {
			valid = append(valid, p)
		}
	}
	return TryPorts(ctx, ap.Addr().Unmap().String(), valid)
}

// lastError returns the innermost cause of a network error.
func lastError(err error) string {
	if no, ok := errors.AsType[syscall.Errno](err); ok {
		return no.Error()
	}
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Err != nil {
		return op.Err.Error()
	}
	return err.Error()
}
