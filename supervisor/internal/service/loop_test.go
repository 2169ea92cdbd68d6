package service

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A loop runs beside the services, is not shown and cannot be asked for, and
// outlives them: what watches the services sees them stop.
func TestLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		program := Spec{Name: "program", Runner: loop(func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended = append(ended, "program")
		})}

		slow := func(ctx context.Context) {
			<-ctx.Done()
			time.Sleep(time.Hour) // longer than a program may take
			ended = append(ended, "watch")
		}

		m := NewManager(quiet(), time.Now)
		if err := m.Add(Loop("watch", slow), program, Loop("once", func(context.Context) {})); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx, time.Minute) }()
		time.Sleep(time.Minute)

		if list := m.Services(8); len(list) != 1 || list[0].Name != "program" || list[0].State != Running {
			t.Errorf("%+v", list)
		}

		if once := m.find("once").Info(0); once.Restarts > 0 || once.State != Running {
			t.Errorf("a loop that is done: %+v", once)
		}

		if err := m.Restart("watch"); !errors.Is(err, ErrUnknown) || strings.Contains(err.Error(), "once") {
			t.Errorf("%v", err)
		}

		if _, err := m.Output("watch", 1); !errors.Is(err, ErrUnknown) {
			t.Errorf("%v", err)
		}

		cancel()
		if err := <-done; err != nil || strings.Join(ended, " ") != "program watch" {
			t.Errorf("%v %v", ended, err)
		}
	})
}

// TestLoopThatDoesNotEndIsLogged: a loop that hangs, for example on a disk, is waited for, and the log
// says which one it is.
func TestLoopThatDoesNotEndIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := NewManager(slog.New(slog.NewTextHandler(&out, nil)), time.Now)
		thawed := make(chan struct{})
		quick := func(ctx context.Context) { <-ctx.Done() }
		if err := m.Add(Loop("quick", quick), Loop("hangs", func(context.Context) { <-thawed })); err != nil {
			t.Fatal(err)
		}

		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- m.Run(ctx, time.Minute) }()
		synctest.Wait() // the loops have begun
		cancel()
		time.Sleep(2 * time.Minute)
		synctest.Wait()

		if text := out.String(); !strings.Contains(text, "part=hangs") || strings.Contains(text, "part=quick") {
			t.Errorf("log: %s", text)
		}
		select {
		case err := <-done:
			t.Errorf("it was not waited for: %v", err)
		default:
		}

		close(thawed)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
