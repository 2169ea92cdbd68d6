package browser

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"
)

// TestLateReturn: the page of a job shows a return soon, even if its node stores the return seconds after
// the event of it, as the third node of a cluster may.
func TestLateReturn(t *testing.T) {
	t.Parallel()
	const readsBefore = 3 // the page itself, and one more as the stream opens and with the event
	var reads atomic.Int32
	site := http.NewServeMux()
	site.HandleFunc("GET /console.js", func(w http.ResponseWriter, r *http.Request) {
		http.ServeFile(w, r, "../../master/restapi/internal/console/static/console.js")
	})

	site.HandleFunc("GET /stream", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		send := func(text string) { fmt.Fprint(w, text); _ = http.NewResponseController(w).Flush() }
		send(": opened\n\n")
		for r.Context().Err() == nil && reads.Load() < readsBefore-1 {
			time.Sleep(50 * time.Millisecond)
		}

		send("data: {}\n\n")
		<-r.Context().Done()
	})

	site.HandleFunc("GET /job", func(w http.ResponseWriter, _ *http.Request) {
		stream, text := ` data-stream="/stream"`, "1 waiting"
		if reads.Add(1) > readsBefore {
			stream, text = "", "1 ok"
		}
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<!DOCTYPE html><title>x</title><link rel="icon" href="data:,"><body data-now="%s">
<div id="live"%s><p>%s</p></div><span id="asof"></span><span id="fresh" hidden></span><script src="/console.js"></script>`, time.Now().Format(time.RFC3339), stream, text)
	})

	server := httptest.NewServer(site)
	t.Cleanup(server.Close) // after the browser has ended
	b := open(t, server.URL, 1280, 800)
	b.see("/job", "#live")
	began := time.Now()
	b.has("1 ok")
	if took := time.Since(began); took > 25*time.Second { // the page reads itself every 30 seconds without an event
		t.Errorf("the return is shown after %s", took)
	}
	b.clean("the page of a job")
}
