// Light, dark, or what the system says.

function drawTheme() {
  const options = [
    { value: "auto", label: "auto" },
    { value: "light", label: "light" },
    { value: "dark", label: "dark" },
  ];
  put(section("theme"),
    segmented("Colours", options, "auto", (value) => {
      if (value === "auto") delete document.documentElement.dataset.theme;
      else document.documentElement.dataset.theme = value;
    }),
  );
}
