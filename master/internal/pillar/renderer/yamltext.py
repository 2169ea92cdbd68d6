"""Leaves the YAML of a template to the master.

Salt renders most SLS in two steps: Jinja makes a text, and the yaml renderer reads it, which
takes longer. Where the master asks for the text and the two steps are Salt's own, the second
gives the text as it is. The master reads it in Go, or sends it back (Session.load_yaml).
"""


class Text:
    """A text that is to be read as YAML."""

    def __init__(self, text):
        self.text = text


class YAMLText:
    """Gives texts in place of what they say as YAML, for one call of compile_template at a time."""

    MOST = 1 << 20  # bytes that the master reads

    def __init__(self):
        self.asked = False

    def install(self):
        """Has compile_template ask here which renderers a template takes."""
        import salt.template

        renderers_of = salt.template.template_shebang

        def template_shebang(*args, **kwargs):
            found = renderers_of(*args, **kwargs)
            # Only the first template. It may render others by functions, which need the values.
            asked, self.asked = self.asked, False
            return self.without_yaml(found) if asked else found

        salt.template.template_shebang = template_shebang

    def without_yaml(self, renderers):
        names = [(render.__module__ or "").rsplit(".", 1)[-1] for render, _ in renderers]
        salts = all(owned(render, "salt.loaded.int.") for render, _ in renderers)
        if names != ["jinja", "yaml"] or not salts or renderers[1][1]:
            return renderers
        return [renderers[0], (self.text_of(renderers[1][0]), "")]

    def text_of(self, read):
        def render(data, saltenv="base", sls="", argline="", **kwargs):
            text = data if isinstance(data, str) else data.read()
            return Text(text) if self.can_be_sent(text) else read(text, saltenv, sls, argline, **kwargs)

        return render

    def can_be_sent(self, text):
        try:
            return len(text.encode()) <= self.MOST
        except UnicodeEncodeError:
            return False

    @contextlib.contextmanager
    def asking(self, asked):
        """Within it, the first template gives its text."""
        self.asked = asked
        try:
            yield
        finally:
            self.asked = False
