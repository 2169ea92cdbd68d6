package zmtp

import "sync"

const (
	readSize = 4 << 10 // size of a read buffer, which a connection holds only while bytes are in it
	// smallSize is the size of a message's first buffer. Every connection may use one buffer of
	// this size, which counts against no budget.
	smallSize = 4 << 10
	freeSize  = 64 << 10 // the largest buffer that is pooled for later messages
)

// pools holds free buffers for the connections of one listener.
type pools struct {
	read  sync.Pool // *[]byte with readSize bytes
	small sync.Pool // *[]byte, empty, with a capacity of smallSize bytes
	large sync.Pool // *[]byte, empty, with a capacity of freeSize bytes
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
	home *sync.Pool // pool that the slice came from; nil: none
	box  *[]byte    // slice to return to home
}

// buffer returns an empty buffer with a capacity of at least size bytes.
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

// free returns the memory to its pool; nobody may use it afterwards.
func (b *buffer) free() {
	if b.home != nil {
		b.home.Put(b.box)
	}
	*b = buffer{}
}
