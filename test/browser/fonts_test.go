package browser

import (
	"os"
	"path/filepath"
	"testing"

	"saltern/test/lab"
)

// fonts gives the file by which Chromium has these fonts alone, drawn in one way, so that
// pictures are the same on each machine.
func fonts(t *testing.T) string {
	t.Helper()
	const dir = "/usr/share/fonts/truetype/dejavu"
	for _, name := range []string{"DejaVuSans", "DejaVuSans-Bold", "DejaVuSansMono", "DejaVuSansMono-Bold"} {
		if _, err := os.Stat(filepath.Join(dir, name+".ttf")); err != nil {
			t.Fatalf("the fonts of the pictures are not there: apt-get install fonts-dejavu-core: %v", err)
		}
	}

	at := lab.Dir(t)
	lab.WriteTree(t, at, map[string]string{"fonts.conf": `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd">
<fontconfig>
<dir>` + dir + `</dir>
<cachedir>` + at + `/cache</cachedir>
<selectfont><rejectfont><glob>*</glob></rejectfont>
<acceptfont><glob>*/DejaVuSans.ttf</glob><glob>*/DejaVuSans-Bold.ttf</glob><glob>*/DejaVuSansMono.ttf</glob><glob>*/DejaVuSansMono-Bold.ttf</glob></acceptfont></selectfont>
<alias binding="same"><family>system-ui</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias binding="same"><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias>
<alias binding="same"><family>ui-monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<alias binding="same"><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<match target="font">
<edit name="antialias" mode="assign"><bool>true</bool></edit>
<edit name="hinting" mode="assign"><bool>false</bool></edit>
<edit name="rgba" mode="assign"><const>none</const></edit>
</match>
</fontconfig>
`})

	return filepath.Join(at, "fonts.conf")
}
