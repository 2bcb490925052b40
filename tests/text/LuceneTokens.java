// What Lucene's analyzers make of the texts of golden_languages.tsv (language, text, tokens):
// writes that file anew, from its first two columns.
//
//   javac -cp "lucene-core-8.7.0.jar:lucene-analyzers-common-8.7.0.jar" -d /tmp LuceneTokens.java
//   java -cp "/tmp:lucene-core-8.7.0.jar:lucene-analyzers-common-8.7.0.jar" LuceneTokens FILE

import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.lucene.analysis.Analyzer;
import org.apache.lucene.analysis.TokenStream;
import org.apache.lucene.analysis.tokenattributes.CharTermAttribute;

public class LuceneTokens {
  static final Map<String, String> ANALYZERS =
      Map.ofEntries(
          Map.entry("ca", "ca.Catalan"),
          Map.entry("cjk", "cjk.CJK"),
          Map.entry("da", "da.Danish"),
          Map.entry("de", "de.German"),
          Map.entry("el", "el.Greek"),
          Map.entry("es", "es.Spanish"),
          Map.entry("fi", "fi.Finnish"),
          Map.entry("fr", "fr.French"),
          Map.entry("hu", "hu.Hungarian"),
          Map.entry("it", "it.Italian"),
          Map.entry("nl", "nl.Dutch"),
          Map.entry("no", "no.Norwegian"),
          Map.entry("pt", "pt.Portuguese"),
          Map.entry("ro", "ro.Romanian"),
          Map.entry("ru", "ru.Russian"),
          Map.entry("sv", "sv.Swedish"),
          Map.entry("tr", "tr.Turkish"));

  public static void main(String[] arguments) throws Exception {
    Path file = Paths.get(arguments[0]);
    List<String> lines = new ArrayList<>();
    for (String line : Files.readAllLines(file)) {
      String[] columns = line.split("\t");
      String name = "org.apache.lucene.analysis." + ANALYZERS.get(columns[0]) + "Analyzer";
      Analyzer analyzer = (Analyzer) Class.forName(name).getDeclaredConstructor().newInstance();
      List<String> tokens = new ArrayList<>();
      try (TokenStream stream = analyzer.tokenStream("text", columns[1])) {
        CharTermAttribute token = stream.addAttribute(CharTermAttribute.class);
        stream.reset();
        while (stream.incrementToken()) tokens.add(token.toString());
        stream.end();
      }
      lines.add(columns[0] + "\t" + columns[1] + "\t" + String.join(" ", tokens));
    }
    Files.write(file, lines);
  }
}
