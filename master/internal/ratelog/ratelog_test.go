package ratelog

import (
	"bytes"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"
)

func TestHandler(t *testing.T) {
	var out bytes.Buffer
	now := time.Unix(1e9, 0)
	log := slog.New(New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}),
		func() time.Time { return now }))
	lines := func() int { n := strings.Count(out.String(), "\n"); return n }

	for i := range 10000 {
		log.With("peer", i).Info(fmt.Sprintf("request refused: %d", i))
	}

	if n := lines(); n != burst {
		t.Fatalf("%d lines of one kind", n)
	}

	log.Warn("request refused: but this is worse")
	log.Info("another kind")
	log.Debug("request refused: in detail")
	if n := lines(); n != burst+3 {
		t.Errorf("other kinds: %d lines", n)
	}

	out.Reset()
	now = now.Add(time.Minute)
	log.Info("request refused: again")
	if !strings.Contains(out.String(), "skipped=9950") {
		t.Errorf("what was left out is not counted: %s", &out)
	}

	out.Reset()
	for i := range 100000 {
		log.Info(fmt.Sprintf("%c%c made up", 'a'+i%26, 'a'+i/26%26))
	}

	if n := lines(); n > (maxKinds+1)*burst {
		t.Errorf("%d lines of kinds that were made up", n)
	}
}
