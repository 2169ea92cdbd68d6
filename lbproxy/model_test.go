package lbproxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"golang.org/x/sys/unix"
)

// model is a kernel with one source and one destination that behaves as the
// real one may: it interrupts, gives and takes less than asked for, and runs
// dry or full at any moment. There is one pipe.
type model struct {
	linux
	rng  *rand.Rand
	src  []byte // still to be read
	dst  []byte // what was written
	pipe []byte
	dry  bool // the source said that it has nothing: an event must come
	full bool // the destination said that it takes nothing
}

// some is at least one and at most n, mostly n.
func (k *model) some(n int) int {
	if k.rng.IntN(3) == 0 {
		return 1 + k.rng.IntN(n)
	}
	return n
}

func (k *model) recv(_ int, p []byte, flags int) (int, unix.Errno) {
	if flags&unix.MSG_TRUNC != 0 { // takes away what was peeked at
		if k.rng.IntN(8) == 0 {
			return -1, unix.EINTR
		}
		n := k.some(min(len(p), len(k.src)))
		k.src = k.src[n:]
		return n, 0
	}

	switch k.rng.IntN(12) {
	case 0:
		return -1, unix.EINTR
	case 1:
		k.dry = true
		return -1, unix.EAGAIN
	}

	if len(k.src) == 0 {
		return 0, 0
	}

	n := min(k.some(len(p)), len(k.src))
	copy(p, k.src[:n])
	if flags&unix.MSG_PEEK == 0 {
		k.src = k.src[n:]
	}

	// Less than asked for means that there is no more now.
	k.dry = n < len(p)
	return n, 0
}

func (k *model) send(_ int, p []byte) (int, unix.Errno) {
	switch k.rng.IntN(10) {
	case 0:
		return -1, unix.EINTR
	case 1, 2:
		k.full = true
		return -1, unix.EAGAIN
	}
	n := k.some(len(p))
	k.dst = append(k.dst, p[:n]...)
	return n, 0
}

// splice moves at most 64 KiB, the size of a pipe without privileges.
func (k *model) splice(in, out, n int) (int, unix.Errno) {
	switch k.rng.IntN(10) {
	case 0:
		return -1, unix.EINTR
	case 1:
		if in < 0 {
			k.dry = true
		} else {
			k.full = true
		}
		return -1, unix.EAGAIN
	case 2:
		if in < 0 {
			return -1, unix.EINVAL
		}
	}

	if in < 0 { // from the source
		n = min(k.some(n), len(k.src), 64<<10)
		if n == 0 {
			return 0, 0
		}
		k.pipe = append(k.pipe, k.src[:n]...)
		k.src = k.src[n:]
		return n, 0
	}

	n = k.some(min(n, len(k.pipe)))
	k.dst = append(k.dst, k.pipe[:n]...)
	k.pipe = k.pipe[n:]
	return n, 0
}

// TestPumpModel: whatever the kernel says at whatever moment, what was read is
// written, all of it, in order, and nothing is left held.
func TestPumpModel(t *testing.T) {
	t.Parallel()
	rounds := uint64(40)
	if testing.Short() {
		rounds = 20
	}

	spliced := 0
	for seed := range rounds {
		rng := rand.New(rand.NewPCG(seed, 7))
		data := make([]byte, 1+rng.IntN(3<<20))
		for i := range data {
			data[i] = byte(i*7 + i>>9)
		}

		if seed%2 == 0 { // as ZMTP, with frames of all sizes
			b := greeting()
			for rest := data; len(rest) > 0; {
				n := min(1+rng.IntN(1<<20), len(rest))
				b = appendFrame(b, 0, rest[:n])
				rest = rest[n:]
			}
			data = b
		}

		cfg := testConfig(Publish)
		cfg.Backends = []Backend{{Name: "b", Address: "127.0.0.1", PublishPort: 1, RequestPort: 2}}
		cfg.Limits.Pending = 2 * bufSize
		p, err := New(cfg, nil)
		if err != nil {
			t.Fatal(err)
		}

		l, err := newLoop(p, 0)
		if err != nil {
			t.Fatal(err)
		}

		k := &model{rng: rng, src: data}
		l.kernel = k
		if seed%3 == 0 {
			l.pendingBytes = bufSize + 1 // others hold much: nothing more may be held
		}

		others := l.pendingBytes
		s := &session{
			frontend: p.frontends[0],
			member:   p.frontends[0].currentMembers()[0],
			fd:       [2]int32{-1, -1},
			altFD:    -1,
			state:    stateOpen,
		}

		l.slots = []slot{{session: s}}
		h := &s.half[sideBackend]
		h.readable = true
		h.writable = true
		h.rdhup = seed%5 == 0
		steps := 0
		for more := true; !h.shut; steps++ {
			if steps > 200000 {
				t.Fatalf("seed %d: stands still: %+v, %d of %d bytes", seed, *h, len(k.dst), len(data))
			}

			// Without work left an event must come, and does if the kernel owes one.
			if !more || rng.IntN(4) == 0 {
				if !more && !k.dry && !k.full {
					t.Fatalf("seed %d: nothing will come and it waits: %+v, %d of %d bytes", seed, *h,
						len(k.dst), len(data))
				}

				if k.dry {
					k.dry, h.readable = false, true
					h.rdhup = h.rdhup || len(k.src) == 0
				}

				if k.full && (h.writable || rng.IntN(2) == 0 || !more) {
					k.full, h.writable = false, true
				}
			}

			more = l.pumpFrom(s, sideBackend)
			if h.splicing {
				spliced++
			}
		}

		if !bytes.Equal(k.dst, data) {
			t.Fatalf("seed %d: %s", seed, difference(k.dst, data))
		}

		if l.pendingBytes != others || h.store != nil || l.pipes.total != len(l.pipes.idle) ||
			h.bytes != uint64(len(data)) {
			t.Errorf("seed %d: left %d bytes, %+v, %d pipes of %d; counted %d of %d", seed, l.pendingBytes-others, h.store,
				len(l.pipes.idle), l.pipes.total, h.bytes, len(data))
		}

		l.closeDescriptors()
	}

	if spliced == 0 {
		t.Error("nothing was spliced: the test has lost its use")
	}
}

func difference(got, want []byte) string {
	i := 0
	for i < min(len(got), len(want)) && got[i] == want[i] {
		i++
	}
	return fmt.Sprintf("%d of %d bytes, the first wrong one at %d", len(got), len(want), i)
}
