// Everything together.

const data = JSON.parse(section("data").textContent);
drawTheme();
drawHeading(data);
drawScores(data);
drawStandings(data);
drawMasks(data);
drawTraffic(data);
drawClients(data);
drawSettings(data);
document.documentElement.dataset.drawn = "yes";
