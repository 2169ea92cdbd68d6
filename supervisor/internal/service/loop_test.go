package service

import (
	"context"
	"errors"
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
