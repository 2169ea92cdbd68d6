package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// bulk downloads over some streams at once, then uploads. An upload ends with
// a half-close, which the proxy must pass on.
func bulk(ctx context.Context, b *bench, streams int) (result, error) {
	r := result{"streams": streams}
	each := uint64(b.o.megabytes) << 20 / uint64(streams)
	if err := b.bulk(ctx, r, "down", streams, each, download); err != nil {
		return nil, err
	}
	if err := b.bulk(ctx, r, "up", streams, each, upload); err != nil {
		return nil, err
	}
	return r, ctx.Err()
}

func (b *bench) bulk(
	ctx context.Context,
	r result,
	name string,
	streams int,
	each uint64,
	move func(net.Conn, uint64) (uint64, error),
) error {
	before, err := b.usage()
	if err != nil {
		return err
	}

	var (
		moved atomic.Uint64
		group sync.WaitGroup
		once  sync.Once
		fault error
	)

	began := time.Now()
	for range streams {
		group.Go(func() {
			n, err := b.stream(ctx, each, move)
			moved.Add(n)
			if err != nil {
				once.Do(func() { fault = err })
			}
		})
	}

	group.Wait()
	wall := time.Since(began)
	after, err := b.usage()
	if err != nil {
		return err
	}

	gigabytes := float64(moved.Load()) / 1e9
	r[name+"_gb_s"] = gigabytes / wall.Seconds()
	if gigabytes > 0 {
		r[name+"_cpu_s_per_gb"] = (after.CPU - before.CPU) / gigabytes
	}

	if missing := int64(each)*int64(streams) - int64(moved.Load()); missing != 0 {
		r[name+"_missing_bytes"] = missing
	}

	if fault != nil {
		return fmt.Errorf("bulk %s: %w", name, fault)
	}

	return nil
}

func (b *bench) stream(ctx context.Context, n uint64, move func(net.Conn, uint64) (uint64, error)) (uint64, error) {
	c, err := net.DialTimeout("tcp", b.target, requestWait)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	end := time.Now().Add(time.Minute)
	if d, ok := ctx.Deadline(); ok && d.Before(end) {
		end = d
	}
	if err := c.SetDeadline(end); err != nil {
		return 0, err
	}
	return move(c, n)
}

func download(c net.Conn, n uint64) (uint64, error) {
	if _, err := c.Write(binary.BigEndian.AppendUint64([]byte{askSource}, n)); err != nil {
		return 0, err
	}
	return drain(c)
}

func upload(c net.Conn, n uint64) (uint64, error) {
	if _, err := c.Write([]byte{askSink}); err != nil {
		return 0, err
	}

	if err := sendBlocks(c, n); err != nil {
		return 0, err
	}

	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		return 0, err
	}

	var count [8]byte
	if _, err := io.ReadFull(c, count[:]); err != nil {
		return 0, err
	}

	return binary.BigEndian.Uint64(count[:]), nil
}
