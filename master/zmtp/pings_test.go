package zmtp

import (
	"bytes"
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"
)

// TestAnswered: an answered PING proves that the subscriber has received everything before it. If
// the path to a subscriber freezes, Answered stays at that time, although the connection stays open
// (S5).
func TestAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newPipes()
		p := ListenPub(context.Background(), ln,
			PubConfig{Listen: Listen{Heartbeat: Heartbeat{
				Interval: 2 * time.Second,
				Timeout:  time.Hour,
				TTL:      8 * time.Second,
			}}})
		defer p.Close()

		c, frames := ln.dial(append(appendReady(greeting(), "SUB", ""), appendMessage(nil, []byte{1})...))
		came := time.Now()
		answered := func() time.Time {
			t.Helper()
			synctest.Wait()
			all := p.Subscribers()
			if len(all) != 1 {
				t.Fatalf("%d subscribers", len(all))
			}
			return all[0].Answered
		}

		pong := func(context []byte) {
			if _, err := c.Write(appendCommand(nil, "PONG", context)); err != nil {
				t.Fatal(err)
			}
		}

		<-frames // READY
		if !answered().Equal(came) {
			t.Errorf("at the start: %s after it came", answered().Sub(came))
		}

		time.Sleep(5 * time.Second)
		if err := p.Publish(context.Background(), []byte("job")); err != nil {
			t.Fatal(err)
		}

		var contexts [][]byte
		synctest.Wait()
		for len(frames) > 0 {
			if f := []byte(<-frames); bytes.HasPrefix(f, []byte("/\x04PING")) {
				contexts = append(contexts, f[len("/\x04PING")+2:])
			}
		}

		if len(contexts) < 3 {
			t.Fatalf("%d PINGs", len(contexts))
		}

		last := contexts[len(contexts)-1]
		pong(contexts[1])
		if got := answered().Sub(came); got <= 0 || got >= 5*time.Second {
			t.Errorf("a PING before the job was made after %s", got)
		}

		pong(last)
		pong(contexts[0]) // a later answer to an earlier one takes nothing back
		if got := answered().Sub(came); got != 5*time.Second {
			t.Errorf("the PING of the job was made after %s", got)
		}

		future := bytes.Clone(last)
		binary.BigEndian.PutUint64(future[8:], 1<<63|uint64(time.Hour))
		stranger := bytes.Clone(last)
		stranger[0]++ // of another master, by way of a load balancer
		binary.BigEndian.PutUint64(stranger[8:], uint64(6*time.Second))

		for _, bad := range [][]byte{nil, {1}, stranger, future, make([]byte, maxPingContext),
			bytes.Repeat([]byte{0xff}, 200)} {
			time.Sleep(time.Second)
			pong(bad)
			if got := answered().Sub(came); got != 5*time.Second {
				t.Errorf("context %x: answered what was made after %s", bad, got)
			}
		}

		_ = c.Close()
	})
}
