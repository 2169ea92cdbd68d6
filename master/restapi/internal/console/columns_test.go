package console

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestColumnsHaveOneName: on a narrow screen the name of a cell is that of its column on a wide one.
func TestColumnsHaveOneName(t *testing.T) {
	t.Parallel()
	tables := regexp.MustCompile(`(?s)<table.*?</table>`)
	heads := regexp.MustCompile(`(?s)<t[hd] role="(?:columnheader|cell)"[^>]*>(.*?)</t[hd]>`)
	cells := regexp.MustCompile(`<t[hd] role="(?:rowheader|cell)"([^>]*)>`)
	label := regexp.MustCompile(`data-label="([^"]*)"`)
	tags := regexp.MustCompile(`<[^>]*>`)
	checked := 0
	for _, pattern := range []string{"testdata/*.html", "testdata/docs/*.html"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) < 20 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, table := range tables.FindAllString(string(text), -1) {
				head, body, _ := strings.Cut(table, "</thead>")
				var names []string
				for _, h := range heads.FindAllStringSubmatch(head, -1) {
					names = append(names, tags.ReplaceAllString(h[1], ""))
				}
				for row := range strings.SplitSeq(body, "</tr>") {
					for i, cell := range cells.FindAllStringSubmatch(row, -1) {
						name := label.FindStringSubmatch(cell[1])
						if name == nil {
							continue // the head of the row, a tick box, a day of the calendar
						}
						checked++
						if i >= len(names) || names[i] != name[1] {
							t.Errorf("%s: a cell is called %q, its column is one of %q", file, name[1], names)
						}
					}
				}
			}
		}
	}
	if checked < 300 {
		t.Errorf("only %d cells were looked at", checked)
	}
}
