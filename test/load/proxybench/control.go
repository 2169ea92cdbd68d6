package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// order is what the suite tells the process of the backends, one line of JSON
// on its standard input; it answers each with a reply.
type order struct {
	Do     string `json:"do"`     // kill, stall, revive, broadcast
	Number int    `json:"number"` // of the backend; broadcast: of all
	Bytes  int    `json:"bytes"`  // broadcast
}

type reply struct {
	Error string `json:"error,omitempty"`
	Start int64  `json:"start"` // broadcast: nanoseconds since 1970
}

// serve is the process of the backends. It ends when standard input does.
func serve(args []string, stdin io.Reader, stdout io.Writer) error {
	if len(args) != 1 {
		return fmt.Errorf("%w: backend takes one argument, ADDR[,ADDR]", errUsage)
	}

	raiseDescriptors()
	var all []*backend
	defer func() {
		for _, b := range all {
			b.kill()
		}
	}()

	for i, addr := range strings.Split(args[0], ",") {
		b := newBackend(i, addr)
		if err := b.revive(); err != nil {
			return err
		}
		all = append(all, b)
	}

	out := json.NewEncoder(stdout)
	if err := out.Encode(reply{}); err != nil { // all listen
		return err
	}

	for in := json.NewDecoder(stdin); ; {
		var o order
		if err := in.Decode(&o); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read an order: %w", err)
		}

		if err := out.Encode(execute(all, o)); err != nil {
			return err
		}
	}
}

func execute(all []*backend, o order) (r reply) {
	if o.Number < 0 || o.Number >= len(all) {
		return reply{Error: fmt.Sprintf("there is no backend %d", o.Number)}
	}

	b := all[o.Number]
	switch o.Do {
	case "kill":
		b.kill()
	case "stall":
		b.stall()
	case "revive":
		if err := b.revive(); err != nil {
			r.Error = err.Error()
		}
	case "broadcast":
		return broadcast(all, o.Bytes)
	default:
		r.Error = fmt.Sprintf("there is no order %q", o.Do)
	}

	return r
}

// broadcast sends a message to all held connections of all backends. It begins
// with the time.
func broadcast(all []*backend, bytes int) reply {
	r := reply{Start: time.Now().UnixNano()}
	message := make([]byte, max(bytes, 8))
	binary.BigEndian.PutUint64(message, uint64(r.Start))
	var group sync.WaitGroup
	for _, b := range all {
		group.Go(func() {
			for _, c := range b.held() {
				// What does not arrive is counted by the clients.
				_ = c.SetWriteDeadline(time.Now().Add(20 * time.Second))
				_, _ = c.Write(message)
			}
		})
	}

	group.Wait()
	return r
}

// backends is the process that serves the backends, as the suite sees it.
type backends struct {
	addrs []string
	cmd   *exec.Cmd
	stdin io.Closer

	mu  sync.Mutex // one order at a time
	in  *json.Encoder
	out *json.Decoder
}

// startBackends runs this program once more, as the backends.
func startBackends(addrs []string, stderr io.Writer) (*backends, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}

	cmd := exec.Command(self, "backend", strings.Join(addrs, ","))
	cmd.Stderr = stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}

	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}

	if err := cmd.Start(); err != nil {
		return nil, err
	}

	b := &backends{
		addrs: addrs,
		cmd:   cmd,
		stdin: in,
		in:    json.NewEncoder(in),
		out:   json.NewDecoder(out),
	}

	var ready reply
	if err := b.out.Decode(&ready); err != nil {
		b.stop()
		return nil, fmt.Errorf("the backends did not start: %w", err)
	}

	return b, nil
}

func (b *backends) do(o order) (reply, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var r reply
	err := b.in.Encode(o)
	if err == nil {
		err = b.out.Decode(&r)
	}

	if err == nil && r.Error != "" {
		err = errors.New(r.Error)
	}

	if err != nil {
		return r, fmt.Errorf("backends: %s: %w", o.Do, err)
	}

	return r, nil
}

// stop ends the process.
func (b *backends) stop() {
	b.stdin.Close()
	impatient := time.AfterFunc(3*time.Second, func() { _ = b.cmd.Process.Kill() })
	defer impatient.Stop()
	_ = b.cmd.Wait() // it has nothing to say
}
