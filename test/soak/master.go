package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"
	"time"

	"saltern/master/zmtp"
)

const (
	publishPort = "24505"
	requestPort = "24506"
)

// pong is what a master answers to the balancer's check.
var (
	ping = []byte("\xa3cmd\xa4ping")
	pong = []byte("\x81\xa3cmd\xa4ping")
	big  = []byte("big")
)

// bigSize is the size of the answer to a request for something big.
const bigSize = 8 << 20

// runMaster is one master: it answers the check, echoes, gives big answers and
// publishes a message every five seconds, until it is told to end.
func runMaster(ip string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer cancel()
	pub, err := net.Listen("tcp", net.JoinHostPort(ip, publishPort))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}

	req, err := net.Listen("tcp", net.JoinHostPort(ip, requestPort))
	if err != nil {
		return errors.Join(fmt.Errorf("listen: %w", err), pub.Close())
	}

	huge := bytes.Repeat([]byte{'z'}, bigSize)
	router, err := zmtp.ListenRouter(ctx, req,
		zmtp.RouterConfig{Handler: func(_ context.Context, _ zmtp.Peer, b []byte) ([]byte, bool) {
			switch {
			case bytes.Contains(b, ping):
				return pong, true
			case bytes.Equal(b, big):
				return huge, true
			}
			return b, true
		}})
	if err != nil {
		return fmt.Errorf("serve requests: %w", err)
	}
	defer router.Close()

	p := zmtp.ListenPub(ctx, pub, zmtp.PubConfig{})
	defer p.Close()
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()

	job := bytes.Repeat([]byte{'j'}, 1024)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			if err := p.Publish(ctx, job); err != nil && ctx.Err() == nil {
				return fmt.Errorf("publish: %w", err)
			}
		}
	}
}
