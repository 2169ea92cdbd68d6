package fileserver

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"

	"saltern/master/value"
)

// Chunk is a part of a file. Its bytes are read only when it is packed, directly into the buffer
// that is sent. Until Close it holds the open file and a disk slot. Only one goroutine may use it.
type Chunk struct {
	file   Handle
	path   string // path on this master
	rel    string // path in the requests of minions
	offset int64
	// size is the number of bytes from offset to the end of the part, when the file was opened.
	size  int
	level int // gzip level; 0: not compressed
	leave func()
}

// missing returns the answer for a file that does not exist or may not be served. A disk error must
// not get this answer: its data are empty, and a minion takes empty data for the end of the file.
func missing() *value.Map { return value.NewMap("data", "", "dest", "") }

// Serve answers _serve_file. It returns a *Chunk, which the caller must close, or a map. Its errors
// are those of Call.
func (s *Server) Serve(ctx context.Context, load *value.Map) (any, error) {
	leave, err := s.waitTurn(ctx, "_serve_file")
	if err != nil {
		return nil, err
	}

	c, none, err := s.openChunk(ctx, load)
	if c != nil && c.level == 0 {
		c.leave = leave
		return c, nil
	}
	defer leave()

	if err != nil {
		return nil, fmt.Errorf("_serve_file: %w", err)
	}
	if c == nil {
		return none, nil
	}
	defer c.file.Close()

	v, err := c.asMap()
	if err != nil {
		return nil, fmt.Errorf("_serve_file: %w", err)
	}

	return v, nil
}

// openChunk opens the file that a _serve_file load names. If there is no such file, the chunk is
// nil and the map is the answer.
func (s *Server) openChunk(ctx context.Context, load *value.Map) (*Chunk, *value.Map, error) {
	loc, ok := load.Int("loc")
	if !ok || loc < 0 {
		return nil, missing(), nil
	}

	h, f, ok, err := s.openFile(ctx, load)
	if err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, missing(), nil
	}

	c := &Chunk{
		file:   h,
		path:   f.Path,
		rel:    f.Rel,
		offset: loc,
		size:   int(max(0, min(int64(s.cfg.BufferSize), f.Stat[6]-loc))),
	}
	if level, ok := gzipLevel(load); ok && c.size > 0 {
		c.level = level
	}

	return c, nil, nil
}

// readInto reads from the file until b is full or the file ends, and returns the number of bytes
// read.
func (c *Chunk) readInto(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, err := c.file.ReadAt(b, c.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return 0, fmt.Errorf("read %s: %w", c.path, err)
	}
	return n, nil
}

// asMap returns the answer as a map.
func (c *Chunk) asMap() (any, error) {
	buf := make([]byte, c.size)
	n, err := c.readInto(buf)
	if err != nil {
		return nil, err
	}

	ret := value.NewMap("data", buf[:n], "dest", c.rel)
	if c.level == 0 || n == 0 {
		return ret, nil
	}

	var z bytes.Buffer
	w, err := gzip.NewWriterLevel(&z, c.level)
	if err != nil {
		return nil, err
	}

	w.Write(buf[:n]) // w writes into memory, which cannot fail
	if err := w.Close(); err != nil {
		return nil, err
	}

	ret.Set("data", z.Bytes())
	ret.Set("gzip", int64(c.level))
	return ret, nil
}

// Packed parts of an answer: the head of a map with two entries, and the keys of that map.
const (
	packedData = "\x82\xa4data"
	packedDest = "\xa4dest"
	rawHead    = 5 // longest head of a packed byte string, in bytes
)

// PackedSize returns an upper bound for the number of bytes that AppendPacked appends.
func (c *Chunk) PackedSize() int {
	return len(packedData) + rawHead + c.size + len(packedDest) + rawHead + len(c.rel)
}

// AppendPacked reads the file and appends the packed answer, a map with data and dest, to dst. head
// appends the head of a packed byte string of n bytes.
func (c *Chunk) AppendPacked(dst []byte, head func(dst []byte, n int) []byte) ([]byte, error) {
	if need := c.PackedSize(); cap(dst)-len(dst) < need {
		dst = append(make([]byte, 0, len(dst)+need), dst...)
	}

	dst = append(dst, packedData...)

	// Leave room for the longest head. A short chunk has a shorter head; only then are the data
	// moved.
	start := len(dst)
	data := dst[start+rawHead : start+rawHead+c.size]
	n, err := c.readInto(data)
	if err != nil {
		return nil, err
	}

	dst = head(dst, n)
	if len(dst) < start+rawHead {
		dst = append(dst, data[:n]...)
	} else {
		dst = dst[:len(dst)+n]
	}

	dst = append(dst, packedDest...)
	dst = head(dst, len(c.rel))
	return append(dst, c.rel...), nil
}

// Close closes the file and frees the disk slot.
func (c *Chunk) Close() error {
	if c.leave != nil {
		defer c.leave()
	}
	if err := c.file.Close(); err != nil {
		return fmt.Errorf("close %s: %w", c.path, err)
	}
	return nil
}

func gzipLevel(load *value.Map) (int, bool) {
	if load.Bool("gzip") {
		return 1, true
	}
	level, ok := load.Int("gzip")
	return int(level), ok && level >= 1 && level <= 9
}
