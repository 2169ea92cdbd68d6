package records

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"saltern/internal/audit"
	"saltern/supervisor/internal/child"
	"saltern/supervisor/internal/member"
	"saltern/supervisor/settings"
)

// A node tells the heads of its audit record, writes down its own and those of the others
// once in a quarter of an hour, and tells when one has become shorter.
func TestHeadsAreToldAndWrittenDown(t *testing.T) {
	cfg := settings.Default("n1")
	cfg.DataDir = t.TempDir()
	var said bytes.Buffer
	now := time.Date(2026, 11, 24, 16, 0, 0, 0, time.UTC)
	record := audit.Open(audit.Config{Dir: cfg.AuditDir(), Node: "n1", Program: "applianced"})
	h := NewHeads(child.Env{
		Settings: &cfg,
		Now:      func() time.Time { return now },
		Log:      slog.New(slog.NewTextHandler(&said, nil)),
	}, record)

	other := audit.ParseHeads("master/acts:7:" + strings.Repeat("ab", 16))
	key := strings.Repeat("11", 32)
	others := func() map[string]member.Heads {
		return map[string]member.Heads{"n2": {Key: strings.Repeat("22", 32), Heads: other}}
	}
	act := func(object string) {
		record.Write(t.Context(),
			audit.Record{
				Actor:  audit.Actor{User: "alice", Proof: audit.Login, From: audit.Local},
				Action: "node.drain",
				Object: object,
				Result: audit.OK,
			})
	}

	act("1")
	h.readHeads(t.Context(), key, others)
	if own := h.Own(); len(own) != 1 || own[0].Folder != audit.NodeFolder || own[0].Seq != 2 {
		t.Fatalf("%v", own)
	}

	act("2")
	now = now.Add(time.Minute)
	h.readHeads(t.Context(), key, others) // too early for another record
	now = now.Add(headsNote)
	h.readHeads(t.Context(), key, others)
	now = now.Add(headsNote)
	h.readHeads(t.Context(), key, others) // nothing is new but the record of heads
	other = audit.ParseHeads("master/acts:6:" + strings.Repeat("cd", 16))
	h.readHeads(t.Context(), key, others)
	record.Close()

	page, err := audit.Read(t.Context(), "n1", audit.HeadsQuery(), cfg.AuditDir())
	if err != nil {
		t.Fatal(err)
	}

	own := audit.HeadsOf(page.Records, "n1", key)
	seqs := map[uint64]int{}
	for _, head := range own {
		if !head.OfHeads() {
			seqs[head.Seq]++
		}
	}

	if len(seqs) != 2 || seqs[2] != 1 || seqs[3] != 1 {
		t.Errorf("own: %v", own)
	}

	if of2 := audit.HeadsOf(page.Records, "n2", strings.Repeat("22", 32)); len(of2) != 2 || of2[0].Seq != 7 ||
		of2[0].By != "n1" {
		t.Errorf("of n2: %v", of2)
	}

	cut, err := audit.Read(t.Context(), "n1", audit.Query{Action: "audit.cut"}, cfg.AuditDir())
	if err != nil || len(cut.Records) != 1 || cut.Records[0].Object != "n2" ||
		!strings.Contains(cut.Records[0].Detail, "it was master/acts:7:") {
		t.Errorf("%+v %v", cut.Records, err)
	}

	if !strings.Contains(said.String(), "node/acts:3:") ||
		!strings.Contains(said.String(), "records are missing at the end of a node's audit record") {
		t.Errorf("%s", said.String())
	}

	list, err := audit.Verify(t.Context(), audit.Folder{Name: audit.NodeFolder, Dir: cfg.AuditDir()}, own)
	if err != nil || !list[0].Whole() || list[0].Told == nil {
		t.Errorf("%+v %v", list, err)
	}
}
