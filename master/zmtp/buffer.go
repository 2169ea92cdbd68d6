package zmtp

import (
	"sync"
	"sync/atomic"
)

const (
	readSize = 4 << 10 // read buffer, held only while bytes are in it
	// growFrom is the size from which a message buffer grows with the bytes
	// that arrive instead of being allocated at once.
	growFrom = 1 << 20
	// freeSize is the size up to which messages do not count against the
	// budget of big messages.
	freeSize  = 64 << 10
	smallSize = 4 << 10
)

// pools lend memory to the connections of one listener.
type pools struct {
	read  sync.Pool // *[]byte of readSize
	small sync.Pool // *[]byte, empty, room for smallSize
	large sync.Pool // *[]byte, empty, room for freeSize
}

func newPools() *pools {
	empty := func(size int) func() any {
		return func() any { b := make([]byte, 0, size); return &b }
	}
	p := &pools{}
	p.read.New = func() any { b := make([]byte, readSize); return &b }
	p.small.New = empty(smallSize)
	p.large.New = empty(freeSize)
	return p
}

// buffer is a byte slice that may have come from a pool.
type buffer struct {
	b    []byte
	home *sync.Pool
	box  *[]byte
}

// buffer gives an empty buffer with room for size bytes.
func (p *pools) buffer(size int) buffer {
	home := &p.small
	switch {
	case size > freeSize:
		return buffer{b: make([]byte, 0, size)}
	case size > smallSize:
		home = &p.large
	}
	box := home.Get().(*[]byte)
	return buffer{b: (*box)[:0], home: home, box: box}
}

// free gives the memory back; nobody may touch it afterwards.
func (b *buffer) free() {
	if b.home != nil {
		b.home.Put(b.box)
	}
	*b = buffer{}
}

// budget bounds the memory of big messages.
type budget struct {
	used atomic.Int64
	max  int64
}

func (g *budget) take(n int64) bool {
	if g.used.Add(n) > g.max {
		g.used.Add(-n)
		return false
	}
	return true
}

func (g *budget) give(n int64) {
	if n != 0 {
		g.used.Add(-n)
	}
}
